// f16 and bf16 <-> f32 in integer arithmetic, exact and independent of the host's float mode
// (docs/numerics.md §0: f16 subnormals are values and are never flushed, in either direction).
#pragma once

#include <bit>
#include <cstdint>

namespace muser::contract {

// Exact. A NaN keeps its payload's top bits and becomes quiet.
static inline float f16_to_f32(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1f) {  // infinity or NaN
        const uint32_t quiet = mantissa != 0 ? 0x00400000u : 0u;
        return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
    }
    if (exponent != 0)
        return std::bit_cast<float>(sign | ((exponent + 112) << 23) | mantissa << 13);
    if (mantissa == 0) return std::bit_cast<float>(sign);
    // Subnormal: mantissa * 2^-24. Move the leading one up to bit 10.
    uint32_t shift = 0;
    while ((mantissa & 0x400u) == 0) {
        mantissa <<= 1;
        ++shift;
    }
    return std::bit_cast<float>(sign | ((113 - shift) << 23) | (mantissa & 0x3ffu) << 13);
}

// Round to nearest even; overflow becomes infinity, NaN becomes a quiet NaN.
static inline uint16_t f32_to_f16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 2^16, inf
    uint32_t kept = 0;       // the result before rounding
    uint32_t remainder = 0;  // what is dropped, as a fraction of `unit`
    uint32_t unit = 0;
    if (magnitude >= 0x38800000u) {  // >= 2^-14: an f16 normal
        kept = (magnitude - 0x38000000u) >> 13;
        remainder = magnitude & 0x1fffu;
        unit = 0x2000u;
    } else {
        const uint32_t exponent = magnitude >> 23;
        if (exponent < 102) return static_cast<uint16_t>(sign);  // below 2^-25: rounds to zero
        const uint32_t shift = 126 - exponent;                   // 14 ... 24
        const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
        kept = significand >> shift;
        unit = 1u << shift;
        remainder = significand & (unit - 1);
    }
    const uint32_t half_unit = unit >> 1;
    if (remainder > half_unit || (remainder == half_unit && (kept & 1u) != 0)) ++kept;
    return static_cast<uint16_t>(sign | kept);  // a carry into the exponent is the right result
}

// Exact: bf16 is the upper half of an f32.
static inline float bf16_to_f32(uint16_t value) {
    return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// Round to nearest even; NaN becomes a quiet NaN.
static inline uint16_t f32_to_bf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace muser::contract
