// Weight types and ggml's quantised blocks, packed as ggml packs them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/half.h"

namespace muser::contract {

// The values are ggml's type ids, as a GGUF file stores them.
enum class WeightType : uint32_t {
    F32 = 0,
    F16 = 1,
    Q8_0 = 8,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    BF16 = 30,
};

// Weights of one superblock, and elements of one activation block (docs/numerics.md §1, §2).
inline constexpr size_t kBlock = 256;

// 8 sub-blocks of 32: weight = d * scale * q - dmin * min. Elements 64c ... 64c+31 are the low
// nibbles of qs[32c ...], elements 64c+32 ... 64c+63 the high ones.
struct BlockQ4_K {
    uint16_t d;     // f16
    uint16_t dmin;  // f16
    uint8_t scales[12];
    uint8_t qs[128];
};

// As Q4_K with a fifth bit: bit j of qh[l] belongs to element l of sub-block j.
struct BlockQ5_K {
    uint16_t d;     // f16
    uint16_t dmin;  // f16
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};

// 16 sub-blocks of 16: weight = d * scale * (q - 32).
struct BlockQ6_K {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;  // f16
};

// 32 weights: d * q. Eight of them make one superblock's worth.
struct BlockQ8_0 {
    uint16_t d;  // f16
    int8_t qs[32];
};

static_assert(sizeof(BlockQ4_K) == 144 && alignof(BlockQ4_K) == 2);
static_assert(sizeof(BlockQ5_K) == 176 && alignof(BlockQ5_K) == 2);
static_assert(sizeof(BlockQ6_K) == 210 && alignof(BlockQ6_K) == 2);
static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 2);

struct WeightTypeInfo {
    WeightType type;
    const char* name;       // ggml's name: "F32", "Q4_K", ...
    size_t block_elements;  // weights per block (1 for the float types)
    size_t block_bytes;
    bool quantised;  // true: meets the block form and needs rows that are multiples of 256
};

// All supported types, in order of their ids.
inline constexpr WeightTypeInfo kWeightTypes[] = {
    {WeightType::F32, "F32", 1, 4, false},      {WeightType::F16, "F16", 1, 2, false},
    {WeightType::Q8_0, "Q8_0", 32, 34, true},   {WeightType::Q4_K, "Q4_K", 256, 144, true},
    {WeightType::Q5_K, "Q5_K", 256, 176, true}, {WeightType::Q6_K, "Q6_K", 256, 210, true},
    {WeightType::BF16, "BF16", 1, 2, false},
};

// The entry of a ggml type id; nullptr for a type that is not supported.
constexpr const WeightTypeInfo* find_weight_type(uint32_t ggml_id) {
    for (const WeightTypeInfo& info : kWeightTypes) {
        if (static_cast<uint32_t>(info.type) == ggml_id) return &info;
    }
    return nullptr;
}

constexpr const WeightTypeInfo& weight_type_info(WeightType type) {
    return *find_weight_type(static_cast<uint32_t>(type));
}

// Bytes of a row of n weights. n must be a multiple of the type's row granularity (1 for float
// types, 256 for quantised ones, Q8_0 included); throws muser::Error otherwise.
size_t row_bytes(WeightType type, size_t n);

// The 6-bit scale and min of sub-block j (0 ... 7) in the 12 packed bytes of Q4_K and Q5_K.
struct ScaleMin {
    uint8_t scale;
    uint8_t min;
};
ScaleMin scale_min(const uint8_t scales[12], size_t j);

// The unsigned quant of element i (0 ... 255): 0 ... 15, 0 ... 31, 0 ... 63 (Q6_K's 32 is not yet
// subtracted).
uint8_t quant(const BlockQ4_K& block, size_t i);
uint8_t quant(const BlockQ5_K& block, size_t i);
uint8_t quant(const BlockQ6_K& block, size_t i);

}  // namespace muser::contract
