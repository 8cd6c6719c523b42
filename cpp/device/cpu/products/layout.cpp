// Which layout a product wants, and the repacking into it (r16.h).
#include <cstring>

#include "contract/blocks.h"
#include "device/cpu/products.h"
#include "device/cpu/products/r16.h"

namespace muser::device::cpu {
namespace {

using contract::BlockQ4_K;
using contract::BlockQ5_K;
using contract::BlockQ6_K;
using contract::BlockQ8_0;

// Byte `byte` of dword lane `row` of line `line`.
uint8_t* lane(uint8_t* lines, size_t line, size_t row, size_t byte = 0) {
    return lines + kLine * line + 4 * row + byte;
}

uint8_t bit5(const BlockQ5_K& block, size_t element) {
    const size_t j = element / 32;
    const size_t l = element % 32;
    const uint8_t nibbles = block.qs[j / 2 * 32 + l];
    const uint8_t low = j % 2 == 0 ? nibbles & 15 : nibbles >> 4;
    return static_cast<uint8_t>(low | ((block.qh[l] >> j) & 1) << 4);
}

uint8_t bit6(const BlockQ6_K& block, size_t element) {
    const size_t half = element / 128;
    const size_t part = element % 128 / 32;
    const size_t l = element % 32;
    const uint8_t nibbles = block.ql[64 * half + part % 2 * 32 + l];
    const uint8_t low = part < 2 ? nibbles & 15 : nibbles >> 4;
    return static_cast<uint8_t>(low | ((block.qh[32 * half + l] >> (2 * part)) & 3) << 4);
}

// One superblock of one row into its lanes. `lines` is the superblock's first line; `d` is where
// Q6_K keeps the superblock's 16 factors.

void put_factors(const uint16_t d, const uint16_t dmin, const uint8_t* scales, uint8_t* lines,
                 size_t row) {
    std::memcpy(lines + 2 * row, &d, 2);
    std::memcpy(lines + 32 + 2 * row, &dmin, 2);
    for (size_t g = 0; g < 3; ++g) std::memcpy(lane(lines, 1 + g, row), scales + 4 * g, 4);
}

void put(const BlockQ4_K& block, uint8_t* lines, uint8_t*, size_t row) {
    put_factors(block.d, block.dmin, block.scales, lines, row);
    for (size_t i = 0; i < 32; ++i) std::memcpy(lane(lines, 4 + i, row), block.qs + 4 * i, 4);
}

void put(const BlockQ5_K& block, uint8_t* lines, uint8_t*, size_t row) {
    put_factors(block.d, block.dmin, block.scales, lines, row);
    for (size_t i = 0; i < 8; ++i) {
        for (size_t byte = 0; byte < 4; ++byte) {
            uint8_t high = 0;
            for (size_t k = 0; k < 4; ++k) {
                const uint8_t easy = bit5(block, 32 * k + 4 * i + byte);
                const uint8_t hard = bit5(block, 32 * (4 + k) + 4 * i + byte);
                *lane(lines, 4 + 5 * i + k, row, byte) =
                    static_cast<uint8_t>(easy << 3 | (hard & 7));
                high = static_cast<uint8_t>(high | (hard >> 3) << (2 * k));
            }
            *lane(lines, 8 + 5 * i, row, byte) = high;
        }
    }
}

void put(const BlockQ6_K& block, uint8_t* lines, uint8_t* d, size_t row) {
    std::memcpy(d + 2 * row, &block.d, 2);
    for (size_t g = 0; g < 4; ++g) std::memcpy(lane(lines, g, row), block.scales + 4 * g, 4);
    for (size_t i = 0; i < 16; ++i) {
        for (size_t byte = 0; byte < 4; ++byte) {
            uint8_t w[4];
            for (size_t k = 0; k < 4; ++k) w[k] = bit6(block, 4 * (16 * k + i) + byte);
            *lane(lines, 4 + 3 * i, row, byte) = static_cast<uint8_t>(w[0] << 2 | (w[3] & 3));
            *lane(lines, 5 + 3 * i, row, byte) = static_cast<uint8_t>(w[1] | (w[3] >> 4) << 6);
            *lane(lines, 6 + 3 * i, row, byte) =
                static_cast<uint8_t>(w[2] | ((w[3] >> 2) & 3) << 6);
        }
    }
}

struct SuperblockQ8_0 {
    BlockQ8_0 blocks[8];
};

void put(const SuperblockQ8_0& superblock, uint8_t* lines, uint8_t*, size_t row) {
    for (size_t j = 0; j < 8; ++j) {
        const BlockQ8_0& block = superblock.blocks[j];
        std::memcpy(lines + 32 * j + 2 * row, &block.d, 2);
        for (size_t i = 0; i < 32; ++i) {
            *lane(lines, 4 + 8 * j + i / 4, row, i % 4) = static_cast<uint8_t>(block.qs[i] + 128);
        }
    }
}

// Rows [begin, end) of the matrix; begin starts a group, end ends one or the matrix.
template <class Block, class Superblock = Block>
void repack_rows(const std::byte* rows, std::byte* destination, uint64_t blocks, uint64_t begin,
                 uint64_t end) {
    const auto* source = reinterpret_cast<const Superblock*>(rows);
    auto* out = reinterpret_cast<uint8_t*>(destination);
    const uint64_t group_bytes = r16_group_bytes<Block>(blocks);
    const uint64_t header = R16<Block>::header_bytes(blocks);
    for (uint64_t first = begin; first < end; first += 16) {
        uint8_t* group = out + first / 16 * group_bytes;
        const uint64_t count = end - first < 16 ? end - first : 16;
        if (count < 16 || header != 0) std::memset(group, 0, count < 16 ? group_bytes : header);
        for (uint64_t b = 0; b < blocks; ++b) {
            uint8_t* lines = group + header + b * R16<Block>::kBlockLines * kLine;
            for (uint64_t r = 0; r < count; ++r) {
                put(source[(first + r) * blocks + b], lines, group + 32 * b, r);
            }
        }
    }
}

}  // namespace

WeightLayout product_layout(Isa isa, const WeightShape& shape) {
    const contract::WeightTypeInfo* info = contract::find_weight_type(shape.type);
    if (info == nullptr) return {"", 0};
    const uint64_t ggml_bytes =
        shape.rows * (shape.cols / info->block_elements * info->block_bytes);
    if (isa == Isa::portable || !info->quantised || shape.cols % 256 != 0) return {"", ggml_bytes};
    const uint64_t groups = (shape.rows + 15) / 16;
    const uint64_t blocks = shape.cols / 256;
    switch (info->type) {
        case contract::WeightType::Q4_K:
            return {"_r16", groups * r16_group_bytes<BlockQ4_K>(blocks)};
        case contract::WeightType::Q5_K:
            return {"_r16", groups * r16_group_bytes<BlockQ5_K>(blocks)};
        case contract::WeightType::Q6_K:
            return {"_r16", groups * r16_group_bytes<BlockQ6_K>(blocks)};
        case contract::WeightType::Q8_0:
            return {"_r16", groups * r16_group_bytes<BlockQ8_0>(blocks)};
        default:
            return {"", ggml_bytes};
    }
}

void product_repack(Isa, const WeightShape& shape, const WeightLayout& layout,
                    const std::byte* rows, std::byte* destination, uint64_t begin, uint64_t end) {
    const uint64_t blocks = shape.cols / 256;
    if (layout.suffix.empty()) {
        const uint64_t row_bytes = layout.bytes / shape.rows;
        std::memcpy(destination + begin * row_bytes, rows + begin * row_bytes,
                    (end - begin) * row_bytes);
        return;
    }
    switch (static_cast<contract::WeightType>(shape.type)) {
        case contract::WeightType::Q4_K:
            return repack_rows<BlockQ4_K>(rows, destination, blocks, begin, end);
        case contract::WeightType::Q5_K:
            return repack_rows<BlockQ5_K>(rows, destination, blocks, begin, end);
        case contract::WeightType::Q6_K:
            return repack_rows<BlockQ6_K>(rows, destination, blocks, begin, end);
        case contract::WeightType::Q8_0:
            return repack_rows<BlockQ8_0, SuperblockQ8_0>(rows, destination, blocks, begin, end);
        default:
            return;
    }
}

}  // namespace muser::device::cpu
