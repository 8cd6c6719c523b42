#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// A norm boundary in one kernel: the post norm and its residual add, then the next norm over the
// new residual (docs/numerics.md §3). Exact: both reductions are those of the separate kernels, and
// a thread sums the very elements that it has just written.
#include "norm.h"

[[max_total_threads_per_threadgroup(1024)]] kernel void rms_norm_add_norm_b16(
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
            residual[i] = h;
            sum = MUSER_FMA(h, h, sum);
        }
    }
    // The second pass reads residual elements of other threads.
    threadgroup_barrier(mem_flags::mem_device);
    const float total = norm_total(sum, n, partial, lane, simd);
    const float scale = norm_scale(total, n, args.eps);
    write_normed(residual, weight, y, form, n, args.blocks, scale, tid, lane, simd);
}
MUSER_WIDE_KERNEL(rms_norm_add_norm_b16, DualNormArgs, 6)

// The inexact one: 128 partials in both norms. Threads beyond 128 add nothing to the sums.
[[max_total_threads_per_threadgroup(1024)]] kernel void rms_norm_add_norm_4sg_b16(
    constant DualNormArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
    device const float* post_weight [[buffer(2)]], device float* residual [[buffer(3)]],
    device const float* weight [[buffer(4)]], device float* y [[buffer(5)]],
    device uchar* form [[buffer(6)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, post_partial, 32);
    MUSER_THREADGROUP(float, partial, 32);
    const uint n = args.n;
    const float post_sum = sum_of_squares(x, n, 128, tid);
    const float post_total = norm_total_4sg(post_sum, post_partial, lane, simd);
    const float post_scale = norm_scale(post_total, n, args.post_eps);

    float sum = 0.0f;
    if (tid < 128) {
        for (uint i = tid; i < n; i += 128) {
            const float h = residual[i] + (x[i] * post_scale) * post_weight[i];
            residual[i] = h;
            sum = MUSER_FMA(h, h, sum);
        }
    }
    threadgroup_barrier(mem_flags::mem_device);
    const float total = norm_total_4sg(sum, partial, lane, simd);
    const float scale = norm_scale(total, n, args.eps);
    write_normed(residual, weight, y, form, n, args.blocks, scale, tid, lane, simd);
}
MUSER_WIDE_KERNEL(rms_norm_add_norm_4sg_b16, DualNormArgs, 6)
