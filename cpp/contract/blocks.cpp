#include "contract/blocks.h"

#include <string>

#include "errors.h"

namespace muser::contract {

size_t row_bytes(WeightType type, size_t n) {
    const WeightTypeInfo& info = weight_type_info(type);
    const size_t granularity = info.quantised ? kBlock : 1;
    if (n % granularity != 0) {
        throw Error("a row of " + std::string(info.name) + " must be a multiple of " +
                        std::to_string(granularity) + " weights, found " + std::to_string(n),
                    {{"type", info.name},
                     {"found", std::to_string(n)},
                     {"expected", "a multiple of " + std::to_string(granularity)}});
    }
    return n / info.block_elements * info.block_bytes;
}

// Sub-blocks 0 ... 3 have their six bits in bytes j (scale) and j + 4 (min). Sub-blocks 4 ... 7
// have four bits in the nibbles of byte j + 4 and the upper two in the top bits of bytes j - 4 and
// j.
ScaleMin scale_min(const uint8_t scales[12], size_t j) {
    if (j < 4) {
        return {static_cast<uint8_t>(scales[j] & 63), static_cast<uint8_t>(scales[j + 4] & 63)};
    }
    return {static_cast<uint8_t>((scales[j + 4] & 15) | (scales[j - 4] >> 6 << 4)),
            static_cast<uint8_t>((scales[j + 4] >> 4) | (scales[j] >> 6 << 4))};
}

uint8_t quant(const BlockQ4_K& block, size_t i) {
    const size_t sub = i / 32;
    const uint8_t byte = block.qs[sub / 2 * 32 + i % 32];
    return sub % 2 == 0 ? byte & 15 : byte >> 4;
}

uint8_t quant(const BlockQ5_K& block, size_t i) {
    const size_t sub = i / 32;
    const uint8_t byte = block.qs[sub / 2 * 32 + i % 32];
    const uint8_t nibble = sub % 2 == 0 ? byte & 15 : byte >> 4;
    const uint8_t fifth = (block.qh[i % 32] >> sub) & 1;
    return static_cast<uint8_t>(nibble | fifth << 4);
}

// Two halves of 128. Within a half, quarter k (32 elements) takes its four low bits from ql byte
// l (k even) or l + 32 (k odd), low nibble for k < 2, and two high bits from bits 2k of qh byte l.
uint8_t quant(const BlockQ6_K& block, size_t i) {
    const size_t half = i / 128;
    const size_t quarter = i % 128 / 32;
    const size_t l = i % 32;
    const uint8_t byte = block.ql[half * 64 + quarter % 2 * 32 + l];
    const uint8_t nibble = quarter < 2 ? byte & 15 : byte >> 4;
    const uint8_t high = (block.qh[half * 32 + l] >> (2 * quarter)) & 3;
    return static_cast<uint8_t>(nibble | high << 4);
}

}  // namespace muser::contract
