// Fused multiply-add on f32 under the flush rule of docs/numerics.md §0: hardware where the
// translation unit is compiled for it, otherwise an exact software version; never libm's.
//
// Internal linkage on purpose, see f32.h.
#pragma once

#include <bit>
#include <cstdint>

#include "contract/f32.h"

namespace muser::contract {

// Exact by construction: the double product of two floats is exact; the sum is rounded to odd (an
// inexact double sum gets its last bit set), and a value rounded to odd with at least two spare
// bits rounds to f32 as the exact sum does.
static inline float fma_software(float a, float b, float c) {
    const double product = static_cast<double>(flush(a)) * static_cast<double>(flush(b));
    const double addend = static_cast<double>(flush(c));
    const double sum = product + addend;
    if ((std::bit_cast<uint64_t>(sum) & 0x7ff0000000000000u) == 0x7ff0000000000000u) {
        return static_cast<float>(sum);  // infinity or NaN: no error term
    }
    // The rounding error of the sum, exactly (Knuth's two-sum).
    const double back = sum - product;
    const double error = (product - (sum - back)) + (addend - back);
    double odd = sum;
    uint64_t bits = std::bit_cast<uint64_t>(sum);
    if (error != 0 && (bits & 1u) == 0) {
        // The exact sum lies strictly between `sum` and a neighbour; both neighbours are odd.
        // Towards larger magnitude when the error has the sum's sign. (The sum is not zero here: an
        // inexact sum is never zero.)
        bits += (error > 0) == (sum > 0) ? 1 : static_cast<uint64_t>(-1);
        odd = std::bit_cast<double>(bits);
    }
    return round_to_f32(odd);
}

#if defined(__FMA__) || defined(__aarch64__)
static inline float fma(float a, float b, float c) {
    const float x = flush(a);
    const float y = flush(b);
    const float z = flush(c);
    const float result = __builtin_fmaf(x, y, z);
    // 2^-126 itself may be a subnormal result rounded up on the subnormals' coarser grid.
    if ((std::bit_cast<uint32_t>(result) & 0x7fffffffu) == 0x00800000u) {
        return fma_software(x, y, z);
    }
    return flush(result);
}
#else
static inline float fma(float a, float b, float c) { return fma_software(a, b, c); }
#endif

}  // namespace muser::contract
