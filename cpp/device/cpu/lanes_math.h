// What several kernels share, over lanes.h: the contract's exp, tanh, sums of squares, RMS scale
// and block form. Orders are docs/numerics.md's; each function names its section.
#pragma once

#include "device/cpu/lanes.h"
#include "metal/kernels/args.h"

namespace muser::device::cpu {
namespace {

// Loops over [0, n): whole vectors, then single elements. Both bodies must do the same arithmetic.
#define MUSER_VECTORS(i, n) for (; i + kLanes <= (n); i += kLanes)

constexpr float kInfinity = __builtin_inff();

MUSER_INLINE bool non_finite(float x) { return (bits(x) & 0x7f800000u) == 0x7f800000u; }

// A correctly rounded square root, never a call into libm.
MUSER_INLINE float square_root(float x) {
#if defined(__x86_64__)
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
#elif defined(__aarch64__)
    return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0);
#endif
}

// §7: metal/kernels/math.h's operations, lane by lane.
MUSER_INLINE Floats exp(Floats x) {
    const Floats n = rint(x * splat(0x1.715476p+0f));
    Floats r = fma(-n, splat(0x1.62e430p-1f), x);
    r = fma(-n, splat(-0x1.05c610p-29f), r);
    Floats p = splat(0x1.6a2434p-10f);
    p = fma(p, r, splat(0x1.1239e2p-7f));
    p = fma(p, r, splat(0x1.5558f2p-5f));
    p = fma(p, r, splat(0x1.555492p-3f));
    p = fma(p, r, splat(0x1.fffffcp-2f));
    p = fma(p, r, splat(1.0f));
    p = fma(p, r, splat(1.0f));
    Floats y = from_bits(bits(p) + (reinterpret_cast<Words>(to_ints(n)) << 23));
    y = x < splat(-0x1.5d589cp+6f) ? splat(0.0f) : y;
    y = x <= splat(0x1.62e42ep+6f) ? y : splat(kInfinity);
    return x != x ? x : y;
}

MUSER_INLINE Floats tanh(Floats x) {
    const Floats a = from_bits(bits(x) & 0x7fffffffu);
    const Floats z = a * a;
    Floats p = splat(-0x1.50bf2p-8f);
    p = fma(p, z, splat(0x1.493084p-6f));
    p = fma(p, z, splat(-0x1.b6c11p-5f));
    p = fma(p, z, splat(0x1.10fae8p-3f));
    p = fma(p, z, splat(-0x1.5554f6p-2f));
    const Floats small = fma(p * z, a, a);
    const Floats large = splat(1.0f) - splat(2.0f) / (exp(a + a) + splat(1.0f));
    const Floats y = a < splat(0x1.666666p-1f) ? small : large;
    return x != x ? x : from_bits(bits(y) | (bits(x) & 0x80000000u));
}

// One lane's worth, for ragged ends: the same operations, so the same bits.
MUSER_INLINE float exp(float x) { return exp(splat(x))[0]; }
MUSER_INLINE float tanh(float x) { return tanh(splat(x))[0]; }

// §6, for vectors and single elements alike.
MUSER_INLINE Floats sigmoid(Floats x) { return splat(1.0f) / (splat(1.0f) + exp(-x)); }
MUSER_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
MUSER_INLINE Floats silu_mul(Floats g, Floats u) { return (g / (splat(1.0f) + exp(-g))) * u; }
MUSER_INLINE float silu_mul(float g, float u) { return (g / (1.0f + exp(-g))) * u; }

// 32 partials as vectors, down to their tree.
MUSER_INLINE float tree_partials(Floats* partials) { return tree(fold(partials, kPartialVectors)); }

// §4, §2: 32 partials over t, t + 32, ... of a * b as fma chains; then tree. n need not be a
// multiple of 32.
MUSER_INLINE float dot_partials(const float* a, const float* b, size_t n) {
    Floats acc[kPartialVectors] = {};
    size_t i = 0;
    for (; i + kPartials <= n; i += kPartials) {
        for (unsigned j = 0; j < kPartialVectors; ++j) {
            acc[j] = fma(load(a + i + j * kLanes), load(b + i + j * kLanes), acc[j]);
        }
    }
    if (i < n) {
        float ragged[kPartials];
        for (unsigned j = 0; j < kPartialVectors; ++j) store(ragged + j * kLanes, acc[j]);
        for (size_t t = 0; i + t < n; ++t) ragged[t] = fma(a[i + t], b[i + t], ragged[t]);
        for (unsigned j = 0; j < kPartialVectors; ++j) acc[j] = load(ragged + j * kLanes);
    }
    return tree_partials(acc);
}

// §3: tree of 32 of the partials over x[i]^2: those of t = first ... first + 31, stride apart.
MUSER_INLINE float square_group(const float* x, size_t n, size_t first, size_t stride) {
    Floats acc[kPartialVectors] = {};
    size_t i = first;
    for (; i + kPartials <= n; i += stride) {
        for (unsigned j = 0; j < kPartialVectors; ++j) {
            const Floats v = load(x + i + j * kLanes);
            acc[j] = fma(v, v, acc[j]);
        }
    }
    if (i < n) {
        float ragged[kPartials];
        for (unsigned j = 0; j < kPartialVectors; ++j) store(ragged + j * kLanes, acc[j]);
        for (size_t t = 0; i + t < n; ++t) ragged[t] = fma(x[i + t], x[i + t], ragged[t]);
        for (unsigned j = 0; j < kPartialVectors; ++j) acc[j] = load(ragged + j * kLanes);
    }
    return tree_partials(acc);
}

MUSER_INLINE float sum_of_squares(const float* x, size_t n) {
    constexpr size_t kMany = 1024;
    if (n < kMany) return square_group(x, n, 0, kPartials);
    float groups[kMany / kPartials];
    for (size_t g = 0; g < kMany / kPartials; ++g) {
        groups[g] = square_group(x, n, g * kPartials, kMany);
    }
    Floats acc[kPartialVectors];
    for (unsigned j = 0; j < kPartialVectors; ++j) acc[j] = load(groups + j * kLanes);
    return tree_partials(acc);
}

// The inexact reduction that the ladder rejects.
MUSER_INLINE float sum_of_squares_4sg(const float* x, size_t n) {
    float groups[4];
    for (size_t g = 0; g < 4; ++g) groups[g] = square_group(x, n, g * kPartials, 4 * kPartials);
    return ((groups[0] + groups[1]) + groups[2]) + groups[3];
}

MUSER_INLINE float rms_scale(float total, size_t n, float eps) {
    if (non_finite(total)) return from_bits(0x7fc00000u);
    return 1.0f / square_root(total / static_cast<float>(n) + eps);
}

// §1: block `block` of the block form of an f32[n] vector, from that block's 256 elements.
MUSER_INLINE void quantise_block(const float* x, size_t n, size_t block, std::byte* form) {
    constexpr unsigned kVectors = MUSER_BLOCK / kLanes;
    Words largest = {};
    for (unsigned i = 0; i < kVectors; ++i) {
        const Words u = bits(load(x + i * kLanes)) & 0x7fffffffu;
        largest = u > largest ? u : largest;
    }
    uint32_t u = 0;
    for (unsigned i = 0; i < kLanes; ++i) u = largest[i] > u ? largest[i] : u;

    int8_t* hi = reinterpret_cast<int8_t*>(form) + block * MUSER_BLOCK;
    int8_t* lo = reinterpret_cast<int8_t*>(form) + MUSER_BLOCK_LO(n) + block * MUSER_BLOCK;
    int32_t* sums = reinterpret_cast<int32_t*>(form + MUSER_BLOCK_SUMS(n)) + block * 16;
    float* s = reinterpret_cast<float*>(form + MUSER_BLOCK_SCALES(n)) + block;
    if (u >= 0x7f800000u || u < 0x00800000u) {
        *s = u < 0x00800000u ? 0.0f : from_bits(0x7fc00000u);
        __builtin_memset(hi, 0, MUSER_BLOCK);
        __builtin_memset(lo, 0, MUSER_BLOCK);
        __builtin_memset(sums, 0, 16 * sizeof *sums);
        return;
    }
    const int32_t wanted = static_cast<int32_t>((u + 0x10100u) >> 23) - 14;
    const uint32_t e = static_cast<uint32_t>(wanted > 1 ? wanted : 1);
    *s = from_bits(e << 23);
    const Floats inverse = splat(from_bits((254 - e) << 23));
    constexpr unsigned kPerSum = 16 / kLanes;  // vectors that one sum covers
    for (unsigned first = 0; first < 16; first += kLanes) {
        Ints parts[kLanes];
        for (unsigned k = 0; k < kLanes; ++k) {
            for (unsigned j = 0; j < kPerSum; ++j) {
                const size_t at = (first + k) * 16 + j * kLanes;
                const Ints q = to_ints(rint(load(x + at) * inverse));
                const Ints high = (q + 128) >> 8;
                store(hi + at, __builtin_convertvector(high, Bytes));
                store(lo + at, __builtin_convertvector(q - (high << 8), Bytes));
                parts[k] = j == 0 ? q : parts[k] + q;
            }
        }
        store(sums + first, tree_lanes(parts));
    }
}

// Planes: f16 or f32 elements behind one name.
struct PlaneF16 {
    using Element = uint16_t;
    MUSER_INLINE Floats load(const uint16_t* from) { return load_f16(from); }
    MUSER_INLINE void store(uint16_t* to, Floats v) { store_f16(to, v); }
    MUSER_INLINE float get(uint16_t v) { return contract::f16_to_f32(v); }
    MUSER_INLINE uint16_t put(float v) { return contract::f32_to_f16(v); }
};
struct PlaneF32 {
    using Element = float;
    MUSER_INLINE Floats load(const float* from) { return cpu::load(from); }
    MUSER_INLINE void store(float* to, Floats v) { cpu::store(to, v); }
    MUSER_INLINE float get(float v) { return v; }
    MUSER_INLINE float put(float v) { return v; }
};

// f32 into a plane's row.
template <class P>
MUSER_INLINE void put_row(typename P::Element* to, const float* from, size_t n) {
    size_t i = 0;
    MUSER_VECTORS(i, n) P::store(to + i, load(from + i));
    for (; i < n; ++i) to[i] = P::put(from[i]);
}

MUSER_INLINE const KvView& view(const StepValues& step, uint32_t which) {
    return which == MUSER_VIEW_RING    ? step.ring
           : which == MUSER_VIEW_PLANE ? step.plane
                                       : step.shadow;
}

}  // namespace
}  // namespace muser::device::cpu
