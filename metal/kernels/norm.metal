#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// RMS norms of one vector (docs/numerics.md §3). One threadgroup of 1,024 threads: the contract's
// 1,024 partials are its threads.
#include "norm.h"

[[max_total_threads_per_threadgroup(1024)]] kernel void rms_norm_f32(
    constant NormArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
    device float* y [[buffer(2)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, partial, 32);
    const float sum = sum_of_squares(x, args.n, norm_partials(args.n), tid);
    const float total = norm_total(sum, args.n, partial, lane, simd);
    const float scale = norm_scale(total, args.n, args.eps);
    for (uint i = tid; i < args.n; i += 1024) y[i] = x[i] * scale;
}
MUSER_WIDE_KERNEL(rms_norm_f32, NormArgs, 2)

[[max_total_threads_per_threadgroup(1024)]] kernel void rms_norm_mul_b16(
    constant NormArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
    device const float* weight [[buffer(2)]], device float* y [[buffer(3)]],
    device uchar* form [[buffer(4)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, partial, 32);
    const float sum = sum_of_squares(x, args.n, norm_partials(args.n), tid);
    const float total = norm_total(sum, args.n, partial, lane, simd);
    const float scale = norm_scale(total, args.n, args.eps);
    write_normed(x, weight, y, form, args.n, args.blocks, scale, tid, lane, simd);
}
MUSER_WIDE_KERNEL(rms_norm_mul_b16, NormArgs, 4)

[[max_total_threads_per_threadgroup(1024)]] kernel void rms_norm_mul_4sg_b16(
    constant NormArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
    device const float* weight [[buffer(2)]], device float* y [[buffer(3)]],
    device uchar* form [[buffer(4)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, partial, 32);
    const float sum = sum_of_squares(x, args.n, 128, tid);
    const float total = norm_total_4sg(sum, partial, lane, simd);
    const float scale = norm_scale(total, args.n, args.eps);
    write_normed(x, weight, y, form, args.n, args.blocks, scale, tid, lane, simd);
}
MUSER_WIDE_KERNEL(rms_norm_mul_4sg_b16, NormArgs, 4)

// residual + (x * scale) * w: the norm acts on the sublayer's output, then the residual is added.
[[max_total_threads_per_threadgroup(1024)]] kernel void rms_norm_add_f32(
    constant NormArgs& args [[buffer(0)]], device const float* x [[buffer(1)]],
    device const float* weight [[buffer(2)]], device float* residual [[buffer(3)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, partial, 32);
    const float sum = sum_of_squares(x, args.n, norm_partials(args.n), tid);
    const float total = norm_total(sum, args.n, partial, lane, simd);
    const float scale = norm_scale(total, args.n, args.eps);
    for (uint i = tid; i < args.n; i += 1024) {
        residual[i] = residual[i] + (x[i] * scale) * weight[i];
    }
}
MUSER_WIDE_KERNEL(rms_norm_add_f32, NormArgs, 3)
