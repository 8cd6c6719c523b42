#include "contract/embedding.h"

#include <cstring>

#include "contract/f32.h"
#include "contract/norm.h"

namespace muser::contract {
namespace {

// Q4_K and Q5_K differ in their quants alone.
template <typename Block>
void dequantise_with_mins(const Block* blocks, size_t n, float* out) {
    for (size_t k = 0; k < n; ++k) {
        const Block& block = blocks[k / kBlock];
        const size_t i = k % kBlock;
        const ScaleMin sm = scale_min(block.scales, i / 32);
        const float scale = mul(f16_to_f32(block.d), static_cast<float>(sm.scale));
        const float min = mul(f16_to_f32(block.dmin), static_cast<float>(sm.min));
        out[k] = sub(mul(scale, static_cast<float>(quant(block, i))), min);
    }
}

void dequantise_q6_k(const BlockQ6_K* blocks, size_t n, float* out) {
    for (size_t k = 0; k < n; ++k) {
        const BlockQ6_K& block = blocks[k / kBlock];
        const size_t i = k % kBlock;
        const float scale = mul(f16_to_f32(block.d), static_cast<float>(block.scales[i / 16]));
        out[k] = mul(scale, static_cast<float>(quant(block, i) - 32));
    }
}

void dequantise_q8_0(const BlockQ8_0* blocks, size_t n, float* out) {
    for (size_t k = 0; k < n; ++k) {
        const BlockQ8_0& block = blocks[k / 32];
        out[k] = mul(f16_to_f32(block.d), static_cast<float>(block.qs[k % 32]));
    }
}

void widen_halves(const void* row, size_t n, float (*widen)(uint16_t), float* out) {
    for (size_t k = 0; k < n; ++k) {
        uint16_t half = 0;
        std::memcpy(&half, static_cast<const char*>(row) + 2 * k, 2);
        out[k] = widen(half);
    }
}

}  // namespace

void dequantise_row(WeightType type, const void* row, size_t n, float* out) {
    row_bytes(type, n);  // refuses a ragged row
    switch (type) {
        case WeightType::F32:
            std::memcpy(out, row, n * sizeof(float));
            return;
        case WeightType::F16:
            widen_halves(row, n, f16_to_f32, out);
            return;
        case WeightType::BF16:
            widen_halves(row, n, bf16_to_f32, out);
            return;
        case WeightType::Q4_K:
            dequantise_with_mins(static_cast<const BlockQ4_K*>(row), n, out);
            return;
        case WeightType::Q5_K:
            dequantise_with_mins(static_cast<const BlockQ5_K*>(row), n, out);
            return;
        case WeightType::Q6_K:
            dequantise_q6_k(static_cast<const BlockQ6_K*>(row), n, out);
            return;
        case WeightType::Q8_0:
            dequantise_q8_0(static_cast<const BlockQ8_0*>(row), n, out);
            return;
    }
}

void embed(WeightType type, const void* row, size_t n, float eps, float* out) {
    dequantise_row(type, row, n, out);
    rms_norm(out, nullptr, n, eps, out);
}

}  // namespace muser::contract
