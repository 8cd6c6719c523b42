// Matrix times vector (docs/numerics.md §2). A matrix is rows of n weights, rows contiguous, in
// ggml's packing. Batch shape, lanes and tiles cannot change a bit: each output is one row's dot.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/blocks.h"
#include "contract/quantise.h"

namespace muser::contract {

// The exact integer sums of one superblock: T = sum of scale * (sum of w * q), |T| < 2^35, and for
// Q4_K and Q5_K M = sum of min * (sum of q), |M| < 2^30.
struct SuperblockSums {
    int64_t t;
    int64_t m;
};
SuperblockSums superblock_sums(const BlockQ4_K& w, const BlockForm& x);
SuperblockSums superblock_sums(const BlockQ5_K& w, const BlockForm& x);
SuperblockSums superblock_sums(const BlockQ6_K& w, const BlockForm& x);  // m = 0

// One row of a quantised matrix (Q4_K, Q5_K, Q6_K, Q8_0) against n activations in block form. n
// must be a multiple of 256; throws muser::Error otherwise or for a float type.
float row_dot(WeightType type, const void* row, const BlockForm* x, size_t n);

// One row of a float matrix (F32, F16, BF16) against n f32 activations, any n: 32 partials, then
// tree. Throws muser::Error for a quantised type.
float row_dot(WeightType type, const void* row, const float* x, size_t n);

// All rows: y[r] = row_dot(row r). The activations in the form that the type meets.
void mat_vec(WeightType type, const void* weights, size_t rows, size_t n, const BlockForm* x,
             float* y);
void mat_vec(WeightType type, const void* weights, size_t rows, size_t n, const float* x, float* y);

}  // namespace muser::contract
