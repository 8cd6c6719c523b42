// Integers wider than 24 bits to f32 (docs/numerics.md §0).
#pragma once

#include <cstdint>

#include "contract/fma.h"

namespace muser::contract {

// f32 of T = 256 * th + tl, correctly rounded, without a wide conversion: A and B are exact in f32
// and the fma rounds once. Holds for |T| < 2^39 (A must stay below 2^24).
static inline float int_to_float(int32_t th, int32_t tl) {
    const int32_t a = (th >> 8) + (tl >> 16);
    const int32_t b = ((th & 255) << 8) + (tl & 65535);
    return fma(static_cast<float>(a), 65536.0f, static_cast<float>(b));
}

// The same value from the exact integer.
static inline float int_to_float(int64_t t) { return static_cast<float>(t); }

}  // namespace muser::contract
