// The scale of one head's RMS norm by one SIMD group: 32 partials, one per lane (docs/numerics.md
// §3; a head is shorter than 1,024).
#pragma once

#include "norm.h"

static inline float head_scale(device const float* x, uint head_dim, float eps, uint lane) {
    float sum = 0.0f;
    for (uint i = lane; i < head_dim; i += 32) sum = MUSER_FMA(x[i], x[i], sum);
    return norm_scale(simd_tree_sum(sum), head_dim, eps);
}
