// RoPE (docs/numerics.md §5). The table is f64 work for the host; devices get f32 cos and sin.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muser::contract {

// Sine and cosine of theta in f64, |theta| < 2^20: our own routine, plain double additions and
// multiplications only, so that every host gives the same bits.
struct SinCos {
    double sin;
    double cos;
};
SinCos sin_cos(double theta);

// cos and sin of theta_i = fl64(position * inv[i]), rounded to f32, for i in [0, pairs).
// 0 <= position < 2^20 and 0 <= inv[i] <= 1; throws muser::Error otherwise.
void rope_table(int64_t position, const double* inv, size_t pairs, float* cos, float* sin);

// Rotates one head in place, interleaved pairs (2i, 2i+1):
// y0 = fma(x0, c, -(x1 * s)), y1 = fma(x0, s, x1 * c).
void rope(float* x, const float* cos, const float* sin, size_t pairs);

}  // namespace muser::contract
