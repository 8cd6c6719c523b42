#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// Combining the chunks of one query head (docs/numerics.md §4): the maximum over all chunks first,
// then the chunks in increasing order. One thread per output element.
#include "attention.h"

static inline float combined(constant AttendArgs& args, uint chunks, device const float* partials,
                             uint element, uint lane) {
    const uint head = element / args.head_dim;
    const uint d = element % args.head_dim;
    const size_t stride = static_cast<size_t>(args.heads) * (2 + args.head_dim);
    device const float* first = partials + static_cast<size_t>(head) * (2 + args.head_dim);

    // Where a SIMD group is within one head its lanes share the search; a maximum has no order.
    const bool shared = args.head_dim % 32 == 0;
    float largest = MUSER_BITS_FLOAT(0xff800000u);
    for (uint c = shared ? lane : 0; c < chunks; c += shared ? 32 : 1) {
        const float m = first[c * stride];
        largest = m > largest ? m : largest;
    }
    if (shared) largest = simd_largest(largest);
    float sum = 0.0f;
    float out = 0.0f;
    device const float* at = first;
    for (uint c = 0; c < chunks; ++c) {
        const float a = muser_exp(at[0] - largest);
        sum = MUSER_FMA(a, at[1], sum);
        out = MUSER_FMA(a, at[2 + d], out);
        at += stride;
    }
    return out / sum;
}

kernel void attend_combine_f32(constant AttendArgs& args [[buffer(0)]],
                               constant StepValues* step [[buffer(1)]],
                               device const float* partials [[buffer(2)]],
                               device float* attention [[buffer(3)]], MUSER_THREAD) {
    const uint element = 256 * group.x + tid;
    if (element >= args.heads * args.head_dim) return;
    attention[element] = combined(args, kv_view(step, args.view)->chunks, partials, element, lane);
}
MUSER_KERNEL(attend_combine_f32, AttendArgs, 3)

kernel void attend_combine_gate_b16(constant AttendArgs& args [[buffer(0)]],
                                    constant StepValues* step [[buffer(1)]],
                                    device const float* partials [[buffer(2)]],
                                    device const float* gate [[buffer(3)]],
                                    device float* attention [[buffer(4)]],
                                    device uchar* form [[buffer(5)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, gated, MUSER_BLOCK);
    const uint element = 256 * group.x + tid;
    const uint n = args.heads * args.head_dim;
    if (element < n) {
        const float value =
            combined(args, kv_view(step, args.view)->chunks, partials, element, lane) *
            muser_sigmoid(gate[element]);
        attention[element] = value;
        gated[tid] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd == 0 && args.blocks != 0) {
        Eight values;
        for (uint i = 0; i < 8; ++i) values.v[i] = gated[8 * lane + i];
        write_block(form, n, group.x, values, lane);
    }
}
MUSER_KERNEL(attend_combine_gate_b16, AttendArgs, 5)
