// The scalar f32 operations of the contract (docs/numerics.md §0), independent of the host's mode.
//
// A subnormal input counts as a zero of its sign; a result that is subnormal after rounding becomes
// a zero of its sign. The engine's threads get this from the hardware mode (ftz.h); here it is
// written out, so that the definition gives the same bits whoever calls it, and so that no compiler
// can move an operation across a change of mode. Where the host's mode does flush, nothing changes.
//
// All functions have internal linkage: they are compiled per instruction set, and the linker must
// not exchange one translation unit's copy for another's.
#pragma once

#include <bit>
#include <cfloat>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace muser::contract {

static_assert(FLT_EVAL_METHOD == 0, "float expressions must be evaluated in float");
#if defined(__FAST_MATH__)
#error "the contract cannot be compiled with -ffast-math"
#endif

// Smallest magnitude that rounds to 2^-126 when the exponent is unbounded: anything below it is
// subnormal after rounding. Exact as a double.
inline constexpr double kTiny = 0x1p-126 * (1.0 - 0x1p-25);

static inline float quiet_nan() { return std::bit_cast<float>(0x7fc00000u); }

// NaN or infinity.
static inline bool non_finite(float x) {
    return (std::bit_cast<uint32_t>(x) & 0x7f800000u) == 0x7f800000u;
}

// A subnormal becomes a zero of its sign; everything else passes.
static inline float flush(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : x;
}

// Rounds an exact (or odd-rounded) double to f32 under the flush rule.
static inline float round_to_f32(double exact) {
    if (exact < kTiny && exact > -kTiny) {
        return std::bit_cast<float>(static_cast<uint32_t>(std::bit_cast<uint64_t>(exact) >> 32) &
                                    0x80000000u);
    }
    return static_cast<float>(exact);
}

// A sum below 2^-126 is a multiple of 2^-149, hence exact: flushing the rounded result is right.
static inline float add(float a, float b) { return flush(flush(a) + flush(b)); }
static inline float sub(float a, float b) { return flush(flush(a) - flush(b)); }

// The double product of two floats is exact.
static inline float mul(float a, float b) {
    return round_to_f32(static_cast<double>(flush(a)) * static_cast<double>(flush(b)));
}

// Correctly rounded. The double quotient only decides whether the result is subnormal: rounding is
// monotone and kTiny is a double, so the comparison is exact; but rounding it to f32 would round
// twice.
static inline float div(float a, float b) {
    const float x = flush(a);
    const float y = flush(b);
    const double wide = static_cast<double>(x) / static_cast<double>(y);
    if (wide < kTiny && wide > -kTiny) return round_to_f32(wide);
    return x / y;
}

// Correctly rounded; never a libm call. A result is never subnormal.
static inline float sqrt(float a) {
    const float x = flush(a);
#if defined(__SSE2__)
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
#elif defined(__aarch64__)
    return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0);
#else
    return __builtin_sqrtf(x);
#endif
}

// Round to an integral value, ties to even, zero keeps the sign; any magnitude; never a libm call.
static inline float rint(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
    if (!(magnitude < 0x1p23f)) return x;  // integral already, infinity or NaN
    const float rounded = (magnitude + 0x1p23f) - 0x1p23f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(rounded) | (bits & 0x80000000u));
}

}  // namespace muser::contract
