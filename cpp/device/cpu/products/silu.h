// silu(g) * u and the block form of the result, in plain C++ (numerics 1 and 6).
//
// Included by the translation units of single instruction sets: internal linkage only.
#pragma once

#include <bit>

#include "device/cpu/products/tile.h"
#include "metal/kernels/math.h"

namespace muser::device::cpu {
namespace {

// y[i] = (g[i] / (1 + exp(-g[i]))) * u[i]
static inline void silu_mul(const float* g, const float* u, uint32_t n, float* y) {
    for (uint32_t i = 0; i < n; ++i) {
        const float sigmoid = contract::div(g[i], contract::add(1.0f, muser_exp(-g[i])));
        y[i] = contract::mul(sigmoid, u[i]);
    }
}

// Block `block` of the block form of an f32[n] vector at `form`, from its 256 values.
static inline void write_block(const float x[256], uint32_t block, uint32_t n, std::byte* form) {
    auto* hi = reinterpret_cast<int8_t*>(form) + 256 * block;
    auto* lo = reinterpret_cast<int8_t*>(form + MUSER_BLOCK_LO(n)) + 256 * block;
    auto* sums = reinterpret_cast<int32_t*>(form + MUSER_BLOCK_SUMS(n)) + 16 * block;
    auto* scale = reinterpret_cast<float*>(form + MUSER_BLOCK_SCALES(n)) + block;
    uint32_t u = 0;
    for (int i = 0; i < 256; ++i) {
        const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
        u = u > bits ? u : bits;
    }
    if (u >= 0x7f800000u || u < 0x00800000u) {
        for (int i = 0; i < 256; ++i) hi[i] = lo[i] = 0;
        for (int i = 0; i < 16; ++i) sums[i] = 0;
        *scale = u >= 0x7f800000u ? contract::quiet_nan() : 0.0f;
        return;
    }
    const uint32_t e = u + 0x10100 < (15u << 23) ? 1 : ((u + 0x10100) >> 23) - 14;
    *scale = std::bit_cast<float>(e << 23);
    const float inverse = std::bit_cast<float>((254 - e) << 23);
    for (int part = 0; part < 16; ++part) {
        int32_t sum = 0;
        for (int i = 16 * part; i < 16 * part + 16; ++i) {
            const auto q = static_cast<int32_t>(contract::rint(contract::mul(x[i], inverse)));
            lo[i] = static_cast<int8_t>(q);
            hi[i] = static_cast<int8_t>((q - lo[i]) >> 8);
            sum += q;
        }
        sums[part] = sum;
    }
}

}  // namespace
}  // namespace muser::device::cpu
