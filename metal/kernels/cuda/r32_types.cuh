// Superblocks of 32 interleaved rows ("_r32"), one lane per row (docs/numerics.md §2).
//
// A superblock of a group is `kPieces` runs of 32 times 16 bytes: piece p of lane r is what ggml has
// at byte 16 p of row r's superblock. Q6_K ends in 32 f16 (d). Q8_0: piece 0 holds the eight d, then
// two pieces per block of 32. No lane needs another's words, and scales are decoded once per 256
// weights.
//
// `step` makes the pairs (coefficient, f32 of an exact integer) of the superblocks of one or two
// groups that meet the same activations: reading those from shared memory is what bounds a single
// one on a large matrix. The chain `acc = fma(coefficient, integer, acc)` over the pairs, in order, is the contract's.
#pragma once

#include "../reduce.h"
#include "grid.cuh"

// One superblock of activations in shared memory, as a warp keeps it.
struct R32Activations {
    uint4 hi[16];
    uint4 lo[16];
    int sums[16];  // of 16 elements; for kPairSums types the first eight are sums of 32
};

struct R32Pairs {
    float2* at;  // this lane's first; the next are 32 further
    __device__ __forceinline__ void put(uint i, float coefficient, float integer) const {
        at[32 * i] = make_float2(coefficient, integer);
    }
};

static __device__ __forceinline__ int r32_dot(uint4 w, uint4 x, int acc) {
    acc = dot4(w.x, x.x, acc);
    acc = dot4(w.y, x.y, acc);
    acc = dot4(w.z, x.z, acc);
    return dot4(w.w, x.w, acc);
}
static __device__ __forceinline__ uint4 r32_field(uint4 v, uint shift, uint mask) {
    return make_uint4((v.x >> shift) & mask, (v.y >> shift) & mask, (v.z >> shift) & mask,
                      (v.w >> shift) & mask);
}
static __device__ __forceinline__ uint4 r32_top(uint4 low, uint4 v, uint shift, uint mask) {
    return make_uint4(low.x | (((v.x >> shift) & mask) << 4), low.y | (((v.y >> shift) & mask) << 4),
                      low.z | (((v.z >> shift) & mask) << 4),
                      low.w | (((v.w >> shift) & mask) << 4));
}
static __device__ __forceinline__ float r32_half(uint bits) {
    return MUSER_HALF_BITS_FLOAT(bits & 0xffffu);
}

// Q4_K and Q5_K: 16 bytes of head (d, dmin, 12 bytes of scales), for Q5_K 32 bytes of fifth bits,
// 128 bytes of nibbles.
template <bool kFifth>
struct R32WithMins {
    enum {
        kPieces = kFifth ? 11 : 9,
        kTail = 0,
        kPairs = 2,
        kPairSums = 1,
    };
    template <uint N>
    static __device__ __forceinline__ void step(const uint4* const (&w)[N], const uint (&)[N],
                                                const R32Activations& x, float s,
                                                const R32Pairs (&out)[N]) {
        int high[N] = {};
        int low[N] = {};
        int m[N] = {};
#pragma unroll
        for (uint c = 0; c < 4; ++c) {
            int h0[N] = {};
            int h1[N] = {};
            int l0[N] = {};
            int l1[N] = {};
#pragma unroll
            for (uint half = 0; half < 2; ++half) {
                const uint4 hi0 = x.hi[4 * c + half];
                const uint4 hi1 = x.hi[4 * c + half + 2];
                const uint4 lo0 = x.lo[4 * c + half];
                const uint4 lo1 = x.lo[4 * c + half + 2];
#pragma unroll
                for (uint i = 0; i < N; ++i) {
                    const uint4 packed = w[i][32 * ((kFifth ? 3 : 1) + 2 * c + half)];
                    uint4 a = r32_field(packed, 0, 0x0f0f0f0fu);
                    uint4 b = r32_field(packed, 4, 0x0f0f0f0fu);
                    if (kFifth) {
                        const uint4 fifth = w[i][32 * (1 + half)];
                        a = r32_top(a, fifth, 2 * c, 0x01010101u);
                        b = r32_top(b, fifth, 2 * c + 1, 0x01010101u);
                    }
                    h0[i] = r32_dot(a, hi0, h0[i]);
                    l0[i] = r32_dot(a, lo0, l0[i]);
                    h1[i] = r32_dot(b, hi1, h1[i]);
                    l1[i] = r32_dot(b, lo1, l1[i]);
                }
            }
            const uint shift = 16 * (c & 1);
#pragma unroll
            for (uint i = 0; i < N; ++i) {
                const uint4 head = w[i][0];
                const uint scales = c < 2 ? head.y & 0x3f3f3f3fu
                                          : (head.w & 0x0f0f0f0fu) | ((head.y >> 2) & 0x30303030u);
                const uint mins = c < 2
                                      ? head.z & 0x3f3f3f3fu
                                      : ((head.w >> 4) & 0x0f0f0f0fu) | ((head.z >> 2) & 0x30303030u);
                const int s0 = static_cast<int>((scales >> shift) & 255u);
                const int s1 = static_cast<int>((scales >> (shift + 8)) & 255u);
                const int m0 = static_cast<int>((mins >> shift) & 255u);
                const int m1 = static_cast<int>((mins >> (shift + 8)) & 255u);
                high[i] += s0 * h0[i] + s1 * h1[i];
                low[i] += s0 * l0[i] + s1 * l1[i];
                m[i] += m0 * x.sums[2 * c] + m1 * x.sums[2 * c + 1];
            }
        }
#pragma unroll
        for (uint i = 0; i < N; ++i) {
            const uint d = w[i][0].x;
            out[i].put(0, r32_half(d) * s, wide_to_float(high[i], low[i]));
            // |M| < 2^30: the wide rule with TH = M div 256 is one exact way to its f32.
            out[i].put(1, -(r32_half(d >> 16) * s), wide_to_float(m[i] >> 8, m[i] & 255));
        }
    }
};
typedef R32WithMins<false> R32Q4K;
typedef R32WithMins<true> R32Q5K;

struct R32Q6K {
    enum { kPieces = 13, kTail = 64, kPairs = 1, kPairSums = 0 };
    template <uint N>
    static __device__ __forceinline__ void step(const uint4* const (&w)[N], const uint (&tail)[N],
                                                const R32Activations& x, float s,
                                                const R32Pairs (&out)[N]) {
        int high[N] = {};
        int low[N] = {};
        int offset[N] = {};
        uint4 scale_words[N];
#pragma unroll
        for (uint i = 0; i < N; ++i) scale_words[i] = w[i][32 * 12];
#pragma unroll
        for (uint n = 0; n < 2; ++n) {
#pragma unroll
            for (uint j = 0; j < 2; ++j) {
#pragma unroll
                for (uint half = 0; half < 2; ++half) {
                    // Runs of 16, each with its own scale.
                    const uint ra = 8 * n + 2 * j + half;
                    const uint rb = ra + 4;
                    const uint4 hi0 = x.hi[ra];
                    const uint4 hi1 = x.hi[rb];
                    const uint4 lo0 = x.lo[ra];
                    const uint4 lo1 = x.lo[rb];
#pragma unroll
                    for (uint i = 0; i < N; ++i) {
                        const uint4 packed = w[i][32 * (4 * n + 2 * j + half)];
                        const uint4 top = w[i][32 * (8 + 2 * n + half)];
                        const uint4 a =
                            r32_top(r32_field(packed, 0, 0x0f0f0f0fu), top, 2 * j, 0x03030303u);
                        const uint4 b =
                            r32_top(r32_field(packed, 4, 0x0f0f0f0fu), top, 4 + 2 * j, 0x03030303u);
                        const uint scales[4] = {scale_words[i].x, scale_words[i].y,
                                                scale_words[i].z, scale_words[i].w};
                        const int sa = static_cast<signed char>(scales[ra / 4] >> (8 * (ra & 3)));
                        const int sb = static_cast<signed char>(scales[rb / 4] >> (8 * (rb & 3)));
                        high[i] += sa * r32_dot(a, hi0, 0) + sb * r32_dot(b, hi1, 0);
                        low[i] += sa * r32_dot(a, lo0, 0) + sb * r32_dot(b, lo1, 0);
                        offset[i] += sa * x.sums[ra] + sb * x.sums[rb];
                    }
                }
            }
        }
#pragma unroll
        for (uint i = 0; i < N; ++i) {
            // The weight is q - 32: T = 256 high + low - 32 offset. |offset| < 2^31: a sum of 16
            // runs of at most 128 * 16 * 32639.
            high[i] -= offset[i] >> 3;
            low[i] -= 32 * (offset[i] & 7);
            out[i].put(0, r32_half(tail[i]) * s, wide_to_float(high[i], low[i]));
        }
    }
};

struct R32Q80 {
    enum { kPieces = 17, kTail = 0, kPairs = 8, kPairSums = 0 };
    template <uint N>
    static __device__ __forceinline__ void step(const uint4* const (&w)[N], const uint (&)[N],
                                                const R32Activations& x, float s,
                                                const R32Pairs (&out)[N]) {
#pragma unroll
        for (uint i = 0; i < N; ++i) {
            const uint4 head = w[i][0];
            const uint halves[4] = {head.x, head.y, head.z, head.w};
#pragma unroll
            for (uint k = 0; k < 8; ++k) {
                const uint4 a = w[i][32 * (1 + 2 * k)];
                const uint4 b = w[i][32 * (2 + 2 * k)];
                const int high = r32_dot(b, x.hi[2 * k + 1], r32_dot(a, x.hi[2 * k], 0));
                const int low = r32_dot(b, x.lo[2 * k + 1], r32_dot(a, x.lo[2 * k], 0));
                const float d = r32_half(halves[k / 2] >> (16 * (k & 1)));
                out[i].put(k, d * s, wide_to_float(high, low));
            }
        }
    }
};

template <typename Type>
static __device__ __forceinline__ size_t r32_group_bytes() {
    return static_cast<size_t>(512) * Type::kPieces + Type::kTail;
}
