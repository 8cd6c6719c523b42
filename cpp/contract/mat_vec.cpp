#include "contract/mat_vec.h"

#include <cstring>
#include <string>

#include "contract/int_to_float.h"
#include "contract/tree.h"
#include "errors.h"

namespace muser::contract {
namespace {

int64_t sub_block_dot(const auto& w, const BlockForm& x, size_t first, size_t count, int bias) {
    int64_t sum = 0;
    for (size_t i = first; i < first + count; ++i) {
        sum += static_cast<int64_t>(quant(w, i) - bias) * block_q(x, i);
    }
    return sum;
}

// Q4_K and Q5_K differ in their quants alone.
SuperblockSums sums_with_mins(const auto& w, const BlockForm& x) {
    SuperblockSums sums{0, 0};
    for (size_t j = 0; j < 8; ++j) {
        const ScaleMin sm = scale_min(w.scales, j);
        int64_t q_sum = 0;
        for (size_t i = 0; i < 32; ++i) q_sum += block_q(x, j * 32 + i);
        sums.t += sm.scale * sub_block_dot(w, x, j * 32, 32, 0);
        sums.m += sm.min * q_sum;
    }
    return sums;
}

template <typename Block>
float dot_with_mins(const Block* w, const BlockForm* x, size_t blocks) {
    float acc = 0.0f;
    for (size_t b = 0; b < blocks; ++b) {
        const SuperblockSums sums = superblock_sums(w[b], x[b]);
        acc = fma(mul(f16_to_f32(w[b].d), x[b].s), int_to_float(sums.t), acc);
        acc = fma(-mul(f16_to_f32(w[b].dmin), x[b].s), int_to_float(sums.m), acc);
    }
    return acc;
}

float dot_q6_k(const BlockQ6_K* w, const BlockForm* x, size_t blocks) {
    float acc = 0.0f;
    for (size_t b = 0; b < blocks; ++b) {
        acc =
            fma(mul(f16_to_f32(w[b].d), x[b].s), int_to_float(superblock_sums(w[b], x[b]).t), acc);
    }
    return acc;
}

float dot_q8_0(const BlockQ8_0* w, const BlockForm* x, size_t blocks) {
    float acc = 0.0f;
    for (size_t k = 0; k < blocks * 8; ++k) {
        const BlockForm& block = x[k / 8];
        int64_t sum = 0;
        for (size_t i = 0; i < 32; ++i) sum += w[k].qs[i] * block_q(block, k % 8 * 32 + i);
        acc = fma(mul(f16_to_f32(w[k].d), block.s), int_to_float(sum), acc);
    }
    return acc;
}

// One element of a float row, exactly. Rows of a file need not be aligned for their type.
float float_weight(WeightType type, const void* row, size_t k) {
    const char* bytes = static_cast<const char*>(row);
    if (type == WeightType::F32) {
        float value = 0.0f;
        std::memcpy(&value, bytes + 4 * k, 4);
        return value;
    }
    uint16_t half = 0;
    std::memcpy(&half, bytes + 2 * k, 2);
    return type == WeightType::F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

[[noreturn]] void wrong_form(WeightType type, const char* form) {
    const char* name = weight_type_info(type).name;
    throw Error(std::string("a row of ") + name + " does not meet activations in " + form,
                {{"type", name}, {"found", form}});
}

}  // namespace

SuperblockSums superblock_sums(const BlockQ4_K& w, const BlockForm& x) {
    return sums_with_mins(w, x);
}

SuperblockSums superblock_sums(const BlockQ5_K& w, const BlockForm& x) {
    return sums_with_mins(w, x);
}

SuperblockSums superblock_sums(const BlockQ6_K& w, const BlockForm& x) {
    SuperblockSums sums{0, 0};
    for (size_t j = 0; j < 16; ++j) sums.t += w.scales[j] * sub_block_dot(w, x, j * 16, 16, 32);
    return sums;
}

float row_dot(WeightType type, const void* row, const BlockForm* x, size_t n) {
    row_bytes(type, n);  // refuses a ragged row
    const size_t blocks = n / kBlock;
    switch (type) {
        case WeightType::Q4_K:
            return dot_with_mins(static_cast<const BlockQ4_K*>(row), x, blocks);
        case WeightType::Q5_K:
            return dot_with_mins(static_cast<const BlockQ5_K*>(row), x, blocks);
        case WeightType::Q6_K:
            return dot_q6_k(static_cast<const BlockQ6_K*>(row), x, blocks);
        case WeightType::Q8_0:
            return dot_q8_0(static_cast<const BlockQ8_0*>(row), x, blocks);
        case WeightType::F32:
        case WeightType::F16:
        case WeightType::BF16:
            break;
    }
    wrong_form(type, "block form");
}

float row_dot(WeightType type, const void* row, const float* x, size_t n) {
    if (weight_type_info(type).quantised) wrong_form(type, "f32");
    float partials[32];
    for (size_t t = 0; t < 32; ++t) {
        partials[t] = 0.0f;
        for (size_t k = t; k < n; k += 32) {
            partials[t] = fma(float_weight(type, row, k), x[k], partials[t]);
        }
    }
    return tree(partials, 32);
}

void mat_vec(WeightType type, const void* weights, size_t rows, size_t n, const BlockForm* x,
             float* y) {
    const size_t stride = row_bytes(type, n);
    for (size_t r = 0; r < rows; ++r) {
        y[r] = row_dot(type, static_cast<const char*>(weights) + r * stride, x, n);
    }
}

void mat_vec(WeightType type, const void* weights, size_t rows, size_t n, const float* x,
             float* y) {
    const size_t stride = row_bytes(type, n);
    for (size_t r = 0; r < rows; ++r) {
        y[r] = row_dot(type, static_cast<const char*>(weights) + r * stride, x, n);
    }
}

}  // namespace muser::contract
