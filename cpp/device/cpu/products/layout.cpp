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

// Dwords 0 ... count - 1 of `bytes` into the row's lanes of lines first, first + step, ...
void put_dwords(const uint8_t* bytes, size_t count, uint8_t* lines, size_t first, size_t step,
                size_t row) {
    for (size_t i = 0; i < count; ++i) {
        std::memcpy(lane(lines, first + step * i, row), bytes + 4 * i, 4);
    }
}

// The unsigned weights of a superblock, a byte each.
void unpack(const BlockQ5_K& block, uint8_t w[256]) {
    for (size_t c = 0; c < 4; ++c) {
        for (size_t l = 0; l < 32; ++l) {
            const unsigned nibbles = block.qs[32 * c + l];
            const unsigned bits = block.qh[l] >> (2 * c);
            w[64 * c + l] = static_cast<uint8_t>((nibbles & 15) | (bits & 1) << 4);
            w[64 * c + 32 + l] = static_cast<uint8_t>(nibbles >> 4 | (bits & 2) << 3);
        }
    }
}

void unpack(const BlockQ6_K& block, uint8_t w[256]) {
    for (size_t half = 0; half < 2; ++half) {
        const uint8_t* ql = block.ql + 64 * half;
        const uint8_t* qh = block.qh + 32 * half;
        for (size_t l = 0; l < 32; ++l) {
            uint8_t* to = w + 128 * half + l;
            const unsigned a = ql[l], b = ql[32 + l], h = qh[l];
            to[0] = static_cast<uint8_t>((a & 15) | (h & 3) << 4);
            to[32] = static_cast<uint8_t>((b & 15) | (h & 12) << 2);
            to[64] = static_cast<uint8_t>(a >> 4 | (h & 48));
            to[96] = static_cast<uint8_t>(b >> 4 | (h & 192) >> 2);
        }
    }
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
    put_dwords(block.qs, 32, lines, 4, 1, row);
}

void put(const BlockQ5_K& block, uint8_t* lines, uint8_t*, size_t row) {
    put_factors(block.d, block.dmin, block.scales, lines, row);
    uint8_t w[256], high[32] = {};
    unpack(block, w);
    for (size_t k = 0; k < 4; ++k) {
        const uint8_t* easy = w + 32 * k;
        const uint8_t* hard = w + 128 + 32 * k;
        uint8_t bytes[32];
        for (size_t i = 0; i < 32; ++i) {
            bytes[i] = static_cast<uint8_t>(easy[i] << 3 | (hard[i] & 7));
            high[i] = static_cast<uint8_t>(high[i] | (hard[i] >> 3) << (2 * k));
        }
        put_dwords(bytes, 8, lines, 4 + k, 5, row);
    }
    put_dwords(high, 8, lines, 8, 5, row);
}

void put(const BlockQ6_K& block, uint8_t* lines, uint8_t* d, size_t row) {
    std::memcpy(d + 2 * row, &block.d, 2);
    put_dwords(reinterpret_cast<const uint8_t*>(block.scales), 4, lines, 0, 1, row);
    uint8_t w[256], bytes[3][64];
    unpack(block, w);
    for (size_t i = 0; i < 64; ++i) {
        const unsigned last = w[192 + i];
        bytes[0][i] = static_cast<uint8_t>(w[i] << 2 | (last & 3));
        bytes[1][i] = static_cast<uint8_t>(w[64 + i] | (last & 48) << 2);
        bytes[2][i] = static_cast<uint8_t>(w[128 + i] | (last & 12) << 4);
    }
    for (size_t k = 0; k < 3; ++k) put_dwords(bytes[k], 16, lines, 4 + k, 3, row);
}

struct SuperblockQ8_0 {
    BlockQ8_0 blocks[8];
};

void put(const SuperblockQ8_0& superblock, uint8_t* lines, uint8_t*, size_t row) {
    for (size_t j = 0; j < 8; ++j) {
        const BlockQ8_0& block = superblock.blocks[j];
        std::memcpy(lines + 32 * j + 2 * row, &block.d, 2);
        uint8_t bytes[32];
        for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<uint8_t>(block.qs[i] + 128);
        put_dwords(bytes, 8, lines, 4 + 8 * j, 1, row);
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
