// The norm boundary of a decode step with everything in registers (docs/numerics.md §3): what
// rms_norm_add_norm_b16 does, with the weights on their way before the kernels in front are done.
// For 1,024 <= n <= 8,192.
#include "../norm.h"
#include "grid.cuh"

#define MUSER_NORM_ELEMENTS 8

extern "C" __global__ void __launch_bounds__(1024, 1)
    muser_norm_boundary(const DualNormArgs args, const float* x, const float* post_weight,
                        float* residual, const float* weight, float* y, uchar* form) {
    __shared__ float partial[2][32];
    extern __shared__ uint4 memory[];
    float* normed = reinterpret_cast<float*>(memory);
    let_next_start();
    const uint tid = threadIdx.x;
    const uint lane = tid & 31u;
    const uint simd = tid >> 5;
    const uint n = args.n;
    float post[MUSER_NORM_ELEMENTS];
    float next[MUSER_NORM_ELEMENTS];
#pragma unroll
    for (uint k = 0; k < MUSER_NORM_ELEMENTS; ++k) {
        const uint i = tid + 1024 * k;
        post[k] = i < n ? __ldg(post_weight + i) : 0.0f;
        next[k] = i < n ? __ldg(weight + i) : 0.0f;
    }
    wait_for_previous();
    float value[MUSER_NORM_ELEMENTS];
    float h[MUSER_NORM_ELEMENTS];
#pragma unroll
    for (uint k = 0; k < MUSER_NORM_ELEMENTS; ++k) {
        const uint i = tid + 1024 * k;
        value[k] = i < n ? __ldcg(x + i) : 0.0f;
        h[k] = i < n ? __ldcg(residual + i) : 0.0f;
    }
    float sum = 0.0f;
#pragma unroll
    for (uint k = 0; k < MUSER_NORM_ELEMENTS; ++k) {
        if (tid + 1024 * k < n) sum = MUSER_FMA(value[k], value[k], sum);
    }
    const float post_scale =
        norm_scale(norm_total(sum, n, partial[0], lane, simd), n, args.post_eps);
    sum = 0.0f;
#pragma unroll
    for (uint k = 0; k < MUSER_NORM_ELEMENTS; ++k) {
        const uint i = tid + 1024 * k;
        if (i < n) {
            h[k] = h[k] + (value[k] * post_scale) * post[k];
            residual[i] = h[k];
            sum = MUSER_FMA(h[k], h[k], sum);
        }
    }
    const float scale = norm_scale(norm_total(sum, n, partial[1], lane, simd), n, args.eps);
#pragma unroll
    for (uint k = 0; k < MUSER_NORM_ELEMENTS; ++k) {
        const uint i = tid + 1024 * k;
        if (i < n) {
            const float out = (h[k] * scale) * next[k];
            y[i] = out;
            normed[i] = out;
        }
    }
    __syncthreads();
    for (uint block = simd; block < args.blocks; block += 32) {
        const float4* mine =
            reinterpret_cast<const float4*>(normed + MUSER_BLOCK * block) + 2 * lane;
        write_block(form, n, block, as_eight(mine[0], mine[1]), lane);
    }
}
