#include "contract/norm.h"

#include "contract/fma.h"
#include "contract/tree.h"

namespace muser::contract {
namespace {

// Partial t is the fma chain of x[i]^2 over i = t, t + count, ...
float square_chain(const float* x, size_t n, size_t t, size_t count) {
    float sum = 0.0f;
    for (size_t i = t; i < n; i += count) sum = fma(x[i], x[i], sum);
    return sum;
}

// Group g of 32 consecutive partials, reduced.
float square_group(const float* x, size_t n, size_t group, size_t count) {
    float partials[32];
    for (size_t lane = 0; lane < 32; ++lane) {
        partials[lane] = square_chain(x, n, group * 32 + lane, count);
    }
    return tree(partials, 32);
}

void apply(const float* x, const float* weight, size_t n, float scale, float* y) {
    for (size_t i = 0; i < n; ++i) {
        const float scaled = mul(x[i], scale);
        y[i] = weight != nullptr ? mul(scaled, weight[i]) : scaled;
    }
}

}  // namespace

float sum_of_squares(const float* x, size_t n) {
    const size_t groups = n >= 1024 ? 32 : 1;
    float totals[32];
    for (size_t g = 0; g < groups; ++g) totals[g] = square_group(x, n, g, groups * 32);
    return tree(totals, groups);
}

float sum_of_squares_4sg(const float* x, size_t n) {
    float g[4];
    for (size_t i = 0; i < 4; ++i) g[i] = square_group(x, n, i, 128);
    return add(add(add(g[0], g[1]), g[2]), g[3]);
}

float rms_scale(float total, size_t n, float eps) {
    if (non_finite(total)) return quiet_nan();
    return div(1.0f, sqrt(add(div(total, static_cast<float>(n)), eps)));
}

void rms_norm(const float* x, const float* weight, size_t n, float eps, float* y) {
    apply(x, weight, n, rms_scale(sum_of_squares(x, n), n, eps), y);
}

void rms_norm_4sg(const float* x, const float* weight, size_t n, float eps, float* y) {
    apply(x, weight, n, rms_scale(sum_of_squares_4sg(x, n), n, eps), y);
}

void residual_add(const float* h, const float* y, size_t n, float* out) {
    for (size_t i = 0; i < n; ++i) out[i] = add(h[i], y[i]);
}

}  // namespace muser::contract
