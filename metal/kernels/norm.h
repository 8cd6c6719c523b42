// RMS norm over one threadgroup of 1,024 threads (docs/numerics.md §3).
#pragma once

#include "block_form.h"

// Partials of the sum of squares: as many as threads, or one SIMD group's for short vectors.
static inline uint norm_partials(uint n) { return n >= 1024 ? 1024u : 32u; }

// The total of the threads' partials; `partial` holds 32 values. All threads call it.
static inline float norm_total(float sum, uint n, threadgroup float* partial, uint lane,
                               uint simd) {
    sum = simd_tree_sum(sum);
    if (lane == 0) partial[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return n >= 1024 ? simd_tree_sum(partial[lane]) : partial[0];
}

// The inexact reduction that the ladder must reject: 128 partials, four groups summed in turn.
static inline float norm_total_4sg(float sum, threadgroup float* partial, uint lane, uint simd) {
    sum = simd_tree_sum(sum);
    if (lane == 0) partial[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return ((partial[0] + partial[1]) + partial[2]) + partial[3];
}

static inline float sum_of_squares(device const float* x, uint n, uint partials, uint tid) {
    float sum = 0.0f;
    if (tid < partials) {
        for (uint i = tid; i < n; i += partials) sum = MUSER_FMA(x[i], x[i], sum);
    }
    return sum;
}

// A total that is not finite must not become the scale 0.
static inline float norm_scale(float total, uint n, float eps) {
    if (is_non_finite(total)) return MUSER_BITS_FLOAT(0x7fc00000u);
    return 1.0f / MUSER_SQRT(total / static_cast<float>(n) + eps);
}

// y = (x * scale) * w and its block form; SIMD group s takes blocks s, s + 32, ...
static inline void write_normed(device const float* x, device const float* weight, device float* y,
                                device uchar* form, uint n, uint blocks, float scale, uint tid,
                                uint lane, uint simd) {
    if (blocks == 0) {
        for (uint i = tid; i < n; i += 1024) y[i] = (x[i] * scale) * weight[i];
        return;
    }
    for (uint block = simd; block < blocks; block += 32) {
        const uint first = MUSER_BLOCK * block + 8 * lane;
        const Eight w = load_eight(weight + first);
        Eight out = load_eight(x + first);
        for (uint i = 0; i < 8; ++i) out.v[i] = (out.v[i] * scale) * w.v[i];
        store_eight(y + first, out);
        write_block(form, n, block, out, lane);
    }
}
