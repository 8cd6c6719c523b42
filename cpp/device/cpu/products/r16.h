// Layout "_r16": groups of 16 rows interleaved by dwords, so that one 64-byte line holds the same
// four weights of 16 rows. A row's lane is its own from load to store: no shuffles, no horizontal
// sums, one decode of scales per 256 weights for 16 rows. A matrix whose rows are no multiple of 16
// ends in a group padded with rows of zeros. Groups follow each other; all lines are 64-byte
// aligned when the matrix is. "Dword e" of a superblock means its elements 4e ... 4e + 3.
//
//   Q4_K, per superblock 36 lines (ggml's own bytes and bits):
//     0       d[16], dmin[16] (f16)
//     1-3     the 12 bytes of scales and mins
//     4-35    qs, dword i of the row
//   Q5_K, per superblock 44 lines (5 lines for each i = 0 ... 7; sub-block j's dword i is e = 8j +
//   i)
//     0-3     as Q4_K
//     4+5i+k  k = 0 ... 3: bits 7-3 the weight of sub-block k, bits 2-0 the low bits of that of
//             sub-block 4 + k
//     8+5i    bits 2k+1, 2k: the high bits of sub-block 4 + k
//   Q6_K, d[blocks][16] (f16), padded to 64 bytes, then per superblock 52 lines (3 for each
//   i = 0 ... 15; e = 16k + i, so that k = 0 ... 3 are sub-blocks 4k ... 4k + 3)
//     0-3     scales, dword g: sub-blocks 4g ... 4g + 3 (int8)
//     4+3i    bits 7-2: k = 0; bits 1-0: k = 3's bits 1-0
//     5+3i    bits 5-0: k = 1; bits 7-6: k = 3's bits 5-4
//     6+3i    bits 5-0: k = 2; bits 7-6: k = 3's bits 3-2
//   Q8_0, per 8 blocks 68 lines
//     0-3     d[8][16] (f16)
//     4+i     dword i of the 256 weights, each plus 128
//
// A weight kept in a byte's top bits is multiplied as it lies, times 8 or 4, and the factor leaves
// with the exact integer sum: that is what the odd places are for. Bytes are ggml's, but for the
// padding; there is no room for a wider scale.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/blocks.h"

namespace muser::device::cpu {
namespace {

constexpr uint64_t kLine = 64;

template <class Block>
struct R16;
template <>
struct R16<contract::BlockQ4_K> {
    static constexpr uint64_t kBlockLines = 36;
    static constexpr uint64_t header_bytes(uint64_t) { return 0; }
};
template <>
struct R16<contract::BlockQ5_K> {
    static constexpr uint64_t kBlockLines = 44;
    static constexpr uint64_t header_bytes(uint64_t) { return 0; }
};
template <>
struct R16<contract::BlockQ6_K> {
    static constexpr uint64_t kBlockLines = 52;
    static constexpr uint64_t header_bytes(uint64_t blocks) { return (blocks * 32 + 63) / 64 * 64; }
};
template <>
struct R16<contract::BlockQ8_0> {
    static constexpr uint64_t kBlockLines = 68;
    static constexpr uint64_t header_bytes(uint64_t) { return 0; }
};

// Bytes of one group of 16 rows of `blocks` superblocks.
template <class Block>
constexpr uint64_t r16_group_bytes(uint64_t blocks) {
    return R16<Block>::header_bytes(blocks) + blocks * R16<Block>::kBlockLines * kLine;
}

}  // namespace
}  // namespace muser::device::cpu
