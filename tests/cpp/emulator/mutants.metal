#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// Copies of kernels with one defect each, in the line that a marker ends or announces. The
// originals are in metal/kernels; the tracer must report every copy and stay silent about every
// original.
#include "../../../metal/kernels/norm.h"

// softcap_f32 without its threadgroup barrier.
kernel void mutant_no_barrier(constant SoftcapArgs& args [[buffer(0)]],
                              device float* logits [[buffer(1)]], device uint* flags [[buffer(2)]],
                              MUSER_THREAD) {
    MUSER_THREADGROUP(uint, found, 8);
    uint bad = 0;
    const uint end = min(args.n, MUSER_HEAD_GROUP * (group.x + 1));
    for (uint i = MUSER_HEAD_GROUP * group.x + tid; i < end; i += 256) {
        const float dot = logits[i];
        if (is_non_finite(dot)) bad = 1;
        logits[i] = args.cap * muser_tanh((dot * args.logit_scale) / args.cap);
    }
    bad = simd_max(bad);
    if (lane == 0) found[simd] = bad;  // MARK no_barrier write
    if (tid == 0) {
        for (uint i = 1; i < 8; ++i) bad |= found[i];  // MARK no_barrier read
        flags[group.x] = bad;
    }
}
MUSER_KERNEL(mutant_no_barrier, SoftcapArgs, 2)

// rms_norm_add_norm_b16 whose middle barrier orders threadgroup memory only.
[[max_total_threads_per_threadgroup(1024)]] kernel void mutant_wrong_barrier(
    constant DualNormArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
    device const float* post_weight [[buffer(2)]], device float* residual [[buffer(3)]],
    device const float* weight [[buffer(4)]], device float* y [[buffer(5)]],
    device uchar* form [[buffer(6)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, post_partial, 32);
    MUSER_THREADGROUP(float, partial, 32);
    const uint n = args.n;
    const uint partials = norm_partials(n);
    const float post_sum = sum_of_squares(x, n, partials, tid);
    const float post_total = norm_total(post_sum, n, post_partial, lane, simd);
    const float post_scale = norm_scale(post_total, n, args.post_eps);
    float sum = 0.0f;
    if (tid < partials) {
        for (uint i = tid; i < n; i += partials) {
            const float h = residual[i] + (x[i] * post_scale) * post_weight[i];
            residual[i] = h;  // MARK wrong_barrier write
            sum = MUSER_FMA(h, h, sum);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float total = norm_total(sum, n, partial, lane, simd);
    const float scale = norm_scale(total, n, args.eps);
    // MARK wrong_barrier read
    write_normed(residual, weight, y, form, n, args.blocks, scale, tid, lane, simd);
}
MUSER_WIDE_KERNEL(mutant_wrong_barrier, DualNormArgs, 6)

// rope_f32 whose second store hits the next lane's pair.
kernel void mutant_overlap(constant RopeArgs& args [[buffer(0)]],
                           constant StepValues* step [[buffer(1)]], device float* x [[buffer(2)]],
                           MUSER_THREAD) {
    const uint pairs = args.head_dim / 2;
    const uint pair = 256 * group.x + tid;
    if (pair + 1 >= args.heads * pairs) return;
    const uint i = pair % pairs;
    const float c = step->rope_cos[i];
    const float s = step->rope_sin[i];
    const float x0 = x[2 * pair];
    const float x1 = x[2 * pair + 1];
    x[2 * pair] = MUSER_FMA(x0, c, -(x1 * s));
    x[2 * pair + 2] = MUSER_FMA(x0, s, x1 * c);  // MARK overlap write
}
MUSER_KERNEL(mutant_overlap, RopeArgs, 2)

// kv_store_f32 whose threadgroups overlap by one element: the lanes that meet are in different
// ones.
kernel void mutant_groups_overlap(constant VectorArgs& args [[buffer(0)]],
                                  device const float* x [[buffer(1)]],
                                  device float* y [[buffer(2)]], MUSER_THREAD) {
    const uint i = 255 * group.x + tid;
    if (i >= args.n) return;
    y[i] = x[i];  // MARK groups_overlap write
}
MUSER_KERNEL(mutant_groups_overlap, VectorArgs, 2)

// head_norm_f32 that reads one element past the end of the weight.
kernel void mutant_past_the_end(constant HeadNormArgs& args [[buffer(0)]],
                                device const float* weight [[buffer(1)]],
                                device float* x [[buffer(2)]], MUSER_THREAD) {
    const uint head = 4 * group.x + simd;
    if (head >= args.heads) return;
    device float* row = x + static_cast<size_t>(head) * args.head_dim;
    float sum = 0.0f;
    for (uint i = lane; i < args.head_dim; i += 32) sum = MUSER_FMA(row[i], row[i], sum);
    const float scale = norm_scale(simd_tree_sum(sum), args.head_dim, args.eps);
    for (uint i = lane; i < args.head_dim; i += 32) {
        row[i] = (row[i] * scale) * weight[i + 1];  // MARK past_the_end read
    }
}
MUSER_KERNEL(mutant_past_the_end, HeadNormArgs, 2)

// A read so far outside that going on could end the process.
kernel void mutant_far_outside(constant VectorArgs& args [[buffer(0)]],
                               device const float* x [[buffer(1)]], device float* y [[buffer(2)]],
                               MUSER_THREAD) {
    if (tid >= args.n) return;
    y[tid] = x[tid + (static_cast<size_t>(1) << 45)];  // MARK far_outside read
}
MUSER_KERNEL(mutant_far_outside, VectorArgs, 2)

// A threadgroup array overrun by one element.
kernel void mutant_array_overrun(constant VectorArgs& args [[buffer(0)]],
                                 device const float* x [[buffer(1)]], device float* y [[buffer(2)]],
                                 MUSER_THREAD) {
    MUSER_THREADGROUP(float, values, 32);
    values[tid + 1] = x[tid];  // MARK array_overrun write
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[tid] = tid == 0 ? x[args.n - 1] : values[tid];
}
MUSER_KERNEL(mutant_array_overrun, VectorArgs, 2)

// A threadgroup array read where nothing has been written.
kernel void mutant_array_unwritten(constant VectorArgs& args [[buffer(0)]],
                                   device const float* x [[buffer(1)]],
                                   device float* y [[buffer(2)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, values, 32);
    if (tid + 1 < args.n) values[tid] = x[tid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[tid] = values[tid] + x[tid];  // MARK array_unwritten read
}
MUSER_KERNEL(mutant_array_unwritten, VectorArgs, 2)

// best_of_group's barrier inside a branch that not every lane takes.
kernel void mutant_divergent_barrier(constant VectorArgs& args [[buffer(0)]],
                                     device const float* x [[buffer(1)]],
                                     device float* y [[buffer(2)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, values, 8);
    if (lane == 0) values[simd] = x[tid];
    if (tid < args.n) {
        threadgroup_barrier(mem_flags::mem_threadgroup);  // MARK divergent_barrier barrier
    }
    if (tid == 0) y[0] = values[0];
}
MUSER_KERNEL(mutant_divergent_barrier, VectorArgs, 2)

// As many barriers in both branches, but not the same one.
kernel void mutant_two_barriers(constant VectorArgs& args [[buffer(0)]],
                                device const float* x [[buffer(1)]], device float* y [[buffer(2)]],
                                MUSER_THREAD) {
    MUSER_THREADGROUP(float, values, 8);
    if (lane == 0) values[simd] = x[tid];
    if (tid < args.n) {
        y[2 + tid] = x[tid];
        threadgroup_barrier(mem_flags::mem_threadgroup);  // MARK two_barriers one
        if (tid == 0) y[0] = values[0];
    } else {
        y[2 + tid] = 2.0f * x[tid];
        threadgroup_barrier(mem_flags::mem_threadgroup);  // MARK two_barriers other
        if (tid == args.n) y[1] = values[1];
    }
}
MUSER_KERNEL(mutant_two_barriers, VectorArgs, 2)

// A shuffle that half of the SIMD group skips, and the other half reads from.
kernel void mutant_divergent_simd(constant VectorArgs& args [[buffer(0)]],
                                  device const float* x [[buffer(1)]],
                                  device float* y [[buffer(2)]], MUSER_THREAD) {
    float value = x[tid];
    if (lane < args.n) {
        value = simd_shuffle_xor(value, static_cast<ushort>(16));  // MARK divergent_simd shuffle
    }
    y[tid] = value;
}
MUSER_KERNEL(mutant_divergent_simd, VectorArgs, 2)

// 16-byte loads from addresses that are multiples of 4.
kernel void mutant_misaligned(constant VectorArgs& args [[buffer(0)]],
                              device const float* x [[buffer(1)]], device float* y [[buffer(2)]],
                              MUSER_THREAD) {
    if (4 * tid + 5 > args.n) return;
    // MARK misaligned read
    const float4 v = *reinterpret_cast<device const float4*>(x + 4 * tid + 1);
    y[tid] = v.x + v.y + v.z + v.w;
}
MUSER_KERNEL(mutant_misaligned, VectorArgs, 2)

// One element more than the 32 KB of a threadgroup's memory.
kernel void mutant_too_much_memory(constant VectorArgs& args [[buffer(0)]],
                                   device const float* x [[buffer(1)]],
                                   device float* y [[buffer(2)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, half_of_it, 4096);
    MUSER_THREADGROUP(float, too_much, 4097);
    half_of_it[tid] = x[tid];
    too_much[tid] = x[tid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < args.n) y[tid] = half_of_it[tid] + too_much[tid];
}
MUSER_KERNEL(mutant_too_much_memory, VectorArgs, 2)
