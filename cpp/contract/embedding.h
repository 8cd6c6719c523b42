// Embedding (docs/numerics.md §8).
#pragma once

#include <cstddef>

#include "contract/blocks.h"

namespace muser::contract {

// One row of n weights to f32. Q4_K, Q5_K: (d * scale) * q - dmin * min; Q6_K: (d * scale) *
// (q - 32); Q8_0: d * q; F16, BF16, F32 exact. n as for row_bytes. Every product has at most 23
// significant bits and is exact: only the subtraction of Q4_K and Q5_K rounds.
void dequantise_row(WeightType type, const void* row, size_t n, float* out);

// The dequantised row, then the weightless RMS norm.
void embed(WeightType type, const void* row, size_t n, float eps, float* out);

}  // namespace muser::contract
