// Reductions over a SIMD group in the contract's order (docs/numerics.md §0): an xor butterfly of
// 32-bit values gives every lane the bits of `tree`.
#pragma once

#include "portable.h"

static inline float simd_tree_sum(float value) {
    for (ushort half_width = 16; half_width > 0; half_width >>= 1) {
        value += simd_shuffle_xor(value, half_width);
    }
    return value;
}

// Sum of exact integers over clusters of eight lanes; any order.
static inline int cluster_sum(int value) {
    for (ushort mask = 4; mask > 0; mask >>= 1) value += simd_shuffle_xor(value, mask);
    return value;
}

// The largest value; where +0 meets -0 either may come out. No lane may hold a NaN.
static inline float simd_largest(float value) {
    for (ushort mask = 16; mask > 0; mask >>= 1) {
        const float other = simd_shuffle_xor(value, mask);
        value = other > value ? other : value;
    }
    return value;
}

// The fold `s > m ? s : m` over lanes 0 to 31, none of them NaN: the first of equals wins, which
// decides between +0 and -0 as the contract's sequential fold does.
static inline float simd_first_largest(float value, uint lane) {
    for (ushort mask = 1; mask < 32; mask <<= 1) {
        const float other = simd_shuffle_xor(value, mask);
        const bool upper = (lane & mask) != 0;
        const float first = upper ? other : value;
        const float second = upper ? value : other;
        value = second > first ? second : first;
    }
    return value;
}

static inline bool is_non_finite(float x) {
    return (MUSER_FLOAT_BITS(x) & 0x7f800000u) == 0x7f800000u;
}

// T = 256 * th + tl as f32, |T| < 2^39 (docs/numerics.md §0).
static inline float wide_to_float(int th, int tl) {
    const int a = (th >> 8) + (tl >> 16);
    const int b = ((th & 255) << 8) + (tl & 65535);
    return MUSER_FMA(static_cast<float>(a), 65536.0f, static_cast<float>(b));
}
