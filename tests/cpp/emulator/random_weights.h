// Random rows of every weight type, with finite scales.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "contract/blocks.h"
#include "contract/half.h"

namespace muser::emulator_test {

using contract::WeightType;

struct TypeName {
    WeightType type;
    const char* name;  // as kernel names have it
};
inline constexpr TypeName kQuantised[] = {{WeightType::Q4_K, "q4_K"},
                                          {WeightType::Q5_K, "q5_K"},
                                          {WeightType::Q6_K, "q6_K"},
                                          {WeightType::Q8_0, "q8_0"}};
inline constexpr TypeName kFloats[] = {
    {WeightType::F32, "f32"}, {WeightType::F16, "f16"}, {WeightType::BF16, "bf16"}};

inline std::vector<uint8_t> random_rows(WeightType type, size_t rows, size_t cols,
                                        std::mt19937& random) {
    std::vector<uint8_t> out(contract::row_bytes(type, cols) * rows);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    if (type == WeightType::F32) {
        for (size_t i = 0; i < rows * cols; ++i) {
            const float x = uniform(random);
            std::memcpy(&out[4 * i], &x, 4);
        }
        return out;
    }
    if (type == WeightType::F16 || type == WeightType::BF16) {
        for (size_t i = 0; i < rows * cols; ++i) {
            const uint16_t x = type == WeightType::F16 ? contract::f32_to_f16(uniform(random))
                                                       : contract::f32_to_bf16(uniform(random));
            std::memcpy(&out[2 * i], &x, 2);
        }
        return out;
    }
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
    // Where the f16 scales stand in a block; subnormal ones among them.
    const auto scale = [&](size_t at) {
        const uint16_t x = random() % 8 == 0 ? static_cast<uint16_t>(random() & 0x83ffu)
                                             : contract::f32_to_f16(0.01f * uniform(random));
        std::memcpy(&out[at], &x, 2);
    };
    const size_t bytes = contract::weight_type_info(type).block_bytes;
    for (size_t at = 0; at < out.size(); at += bytes) {
        if (type == WeightType::Q6_K) {
            scale(at + 208);
        } else {
            scale(at);
            if (type != WeightType::Q8_0) scale(at + 2);
        }
    }
    return out;
}

// The largest magnitudes: every quant and scale at an end of its range.
inline std::vector<uint8_t> extreme_rows(WeightType type, size_t rows, size_t cols, uint8_t fill) {
    std::vector<uint8_t> out(contract::row_bytes(type, cols) * rows, fill);
    const uint16_t one = 0x3c00;
    const size_t bytes = contract::weight_type_info(type).block_bytes;
    for (size_t at = 0; at < out.size(); at += bytes) {
        std::memcpy(&out[type == WeightType::Q6_K ? at + 208 : at], &one, 2);
        if (type == WeightType::Q4_K || type == WeightType::Q5_K) {
            std::memcpy(&out[at + 2], &one, 2);
        }
    }
    return out;
}

}  // namespace muser::emulator_test
