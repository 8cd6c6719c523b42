// The vector of one instruction set: kLanes floats that behave alike everywhere. Kernels are
// written once over it and compiled per instruction set; nothing here is shared between objects.
//
// Arithmetic is the compiler's vector extension (+ - * / compare, one IEEE operation per lane,
// never contracted); only what the extension lacks is spelt in intrinsics: fma, rint, f16
// conversions. Subnormals are flushed by the thread's float mode.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/fma.h"
#include "contract/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define MUSER_LANES 16
#elif defined(__AVX2__)
#define MUSER_LANES 8
#else
#define MUSER_LANES 4
#endif

#define MUSER_INLINE [[maybe_unused, gnu::always_inline]] static inline

namespace muser::device::cpu {
namespace {

constexpr unsigned kLanes = MUSER_LANES;
typedef float Floats __attribute__((vector_size(4 * MUSER_LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * MUSER_LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * MUSER_LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * MUSER_LANES)));
typedef int8_t Bytes __attribute__((vector_size(MUSER_LANES)));

// The contract's 32 partials.
constexpr unsigned kPartials = 32;
constexpr unsigned kPartialVectors = kPartials / kLanes;

template <class V, class T>
MUSER_INLINE V load_as(const T* from) {
    V v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}
MUSER_INLINE Floats load(const float* from) { return load_as<Floats>(from); }
template <class V>
MUSER_INLINE void store(void* to, V v) {
    __builtin_memcpy(to, &v, sizeof v);
}

MUSER_INLINE Words bits(Floats v) { return reinterpret_cast<Words>(v); }
MUSER_INLINE Floats from_bits(Words v) { return reinterpret_cast<Floats>(v); }
MUSER_INLINE float from_bits(uint32_t v) { return __builtin_bit_cast(float, v); }
MUSER_INLINE uint32_t bits(float v) { return __builtin_bit_cast(uint32_t, v); }

// Integral values only; what NaN and values out of range give is unspecified.
MUSER_INLINE Ints to_ints(Floats v) { return __builtin_convertvector(v, Ints); }

#if defined(__AVX512F__)

MUSER_INLINE Floats splat(float x) { return _mm512_set1_ps(x); }
MUSER_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
MUSER_INLINE Floats rint(Floats x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT); }
MUSER_INLINE Floats load_f16(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
MUSER_INLINE void store_f16(uint16_t* to, Floats v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__AVX2__)

MUSER_INLINE Floats splat(float x) { return _mm256_set1_ps(x); }
MUSER_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
MUSER_INLINE Floats rint(Floats x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT); }
MUSER_INLINE Floats load_f16(const uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
MUSER_INLINE void store_f16(uint16_t* to, Floats v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__aarch64__)

MUSER_INLINE Floats splat(float x) { return vdupq_n_f32(x); }
MUSER_INLINE Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
MUSER_INLINE Floats rint(Floats x) { return vrndnq_f32(x); }
MUSER_INLINE Floats load_f16(const uint16_t* from) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}
MUSER_INLINE void store_f16(uint16_t* to, Floats v) {
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}

#else  // x86-64-v2: no fused multiply-add, no f16

MUSER_INLINE Floats splat(float x) { return _mm_set1_ps(x); }
MUSER_INLINE Floats rint(Floats x) { return _mm_round_ps(x, _MM_FROUND_TO_NEAREST_INT); }

// contract/fma.h's software fma, four lanes without a branch: the double product is exact, the sum
// is rounded to odd, and rounding that to f32 rounds the exact sum once. Flushing of inputs and of
// the result is the conversions', by the thread's mode.
MUSER_INLINE Floats fma(Floats a, Floats b, Floats c) {
    typedef double Doubles __attribute__((vector_size(8 * MUSER_LANES)));
    typedef int64_t Longs __attribute__((vector_size(8 * MUSER_LANES)));
    constexpr int64_t kExponent = 0x7ff0000000000000;
    const Doubles product =
        __builtin_convertvector(a, Doubles) * __builtin_convertvector(b, Doubles);
    const Doubles addend = __builtin_convertvector(c, Doubles);
    const Doubles sum = product + addend;
    const Doubles back = sum - product;
    const Doubles error = (product - (sum - back)) + (addend - back);
    const Doubles zero = {};
    const Longs word = reinterpret_cast<Longs>(sum);
    const Longs opposite = (error > zero) ^ (sum > zero);
    const Longs step = 1 + (opposite & -2);  // +1 away from zero, -1 towards it
    const Longs moves = (error != zero) & ((word & 1) == 0) & ((word & kExponent) != kExponent);
    return __builtin_convertvector(reinterpret_cast<Doubles>(word + (step & moves)), Floats);
}

MUSER_INLINE Floats load_f16(const uint16_t* from) {
    const Words half = __builtin_convertvector(load_as<Halves>(from), Words);
    const Words magnitude = half & 0x7fff;
    // A subnormal is mantissa * 2^-24, a normal f32; infinity and NaN get the exponent's other
    // half.
    const Words small =
        bits(__builtin_convertvector(reinterpret_cast<Ints>(magnitude), Floats) * splat(0x1p-24f));
    Words normal = (magnitude << 13) + (112u << 23);
    normal += (magnitude >= 0x7c00) & (112u << 23);
    return from_bits((magnitude < 0x400 ? small : normal) | (half & 0x8000) << 16);
}
MUSER_INLINE void store_f16(uint16_t* to, Floats v) {
    for (unsigned i = 0; i < kLanes; ++i) to[i] = contract::f32_to_f16(v[i]);
}

#endif

// The scalar operation for ragged ends: one IEEE fma under the thread's mode.
MUSER_INLINE float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return contract::fma_software(a, b, c);
#endif
}

// One step of the contract's tree, for several vectors at once: a and b hold segments of 2 * kHalf
// lanes; the result holds all of them, halved once. Where the segments of a and b land is such that
// each step is one cheap shuffle; tree_lanes() below knows the order.
#if MUSER_LANES == 16
template <class V>
MUSER_INLINE V halve16(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30,
                                   31);
}
template <class V>
MUSER_INLINE V halve8(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30,
                                   31);
}
template <class V>
MUSER_INLINE V halve4(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
           __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30,
                                   31);
}
template <class V>
MUSER_INLINE V halve2(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28,
                                   30) +
           __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}
// Lane k is tree(v[k]), for kLanes vectors.
template <class V>
MUSER_INLINE V tree_lanes(const V* v) {
    V quad[4];
    for (unsigned i = 0; i < 4; ++i) {
        quad[i] = halve8(halve16(v[i], v[i + 4]), halve16(v[i + 8], v[i + 12]));
    }
    return halve2(halve4(quad[0], quad[1]), halve4(quad[2], quad[3]));
}
#elif MUSER_LANES == 8
template <class V>
MUSER_INLINE V halve8(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
template <class V>
MUSER_INLINE V halve4(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
           __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}
template <class V>
MUSER_INLINE V halve2(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}
template <class V>
MUSER_INLINE V tree_lanes(const V* v) {
    V half[4];
    for (unsigned i = 0; i < 4; ++i) half[i] = halve8(v[i], v[i + 4]);
    return halve2(halve4(half[0], half[1]), halve4(half[2], half[3]));
}
#else
template <class V>
MUSER_INLINE V halve4(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
}
template <class V>
MUSER_INLINE V halve2(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
}
template <class V>
MUSER_INLINE V tree_lanes(const V* v) {
    return halve2(halve4(v[0], v[1]), halve4(v[2], v[3]));
}
#endif

// tree() of one vector.
template <class V>
MUSER_INLINE auto tree(V v) {
#if MUSER_LANES == 16
    v = halve16(v, v);
#endif
#if MUSER_LANES >= 8
    v = halve8(v, v);
#endif
    v = halve4(v, v);
    return halve2(v, v)[0];
}

// The upper steps of tree() over `count` (a power of two) vectors, down to one.
template <class V>
MUSER_INLINE V fold(V* v, unsigned count) {
    for (unsigned half = count / 2; half > 0; half /= 2) {
        for (unsigned i = 0; i < half; ++i) v[i] += v[i + half];
    }
    return v[0];
}

}  // namespace
}  // namespace muser::device::cpu
