// RMS norm and the residual add (docs/numerics.md §3).
#pragma once

#include <cstddef>

namespace muser::contract {

// Sum of squares of x[0 ... n): 1024 partials for n >= 1024, else 32; tree in groups of 32
// consecutive partials, then tree over the groups.
float sum_of_squares(const float* x, size_t n);

// The same over 128 partials with ((g0 + g1) + g2) + g3 over the four groups: the *inexact* fused
// boundary that the ladder must reject. Not contract.
float sum_of_squares_4sg(const float* x, size_t n);

// 1 / sqrt(total / f32(n) + eps); NaN where the total is not finite.
float rms_scale(float total, size_t n, float eps);

// y[i] = (x[i] * scale) * w[i]; without weight (nullptr) y[i] = x[i] * scale. y may be x.
void rms_norm(const float* x, const float* weight, size_t n, float eps, float* y);
void rms_norm_4sg(const float* x, const float* weight, size_t n, float eps, float* y);

// out[i] = h[i] + y[i]. out may be h or y.
void residual_add(const float* h, const float* y, size_t n, float* out);

}  // namespace muser::contract
