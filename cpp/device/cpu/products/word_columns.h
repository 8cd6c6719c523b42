// Many columns against matrices in layout _r16 by 16-bit multiply-adds, for any vectors.
//
// A superblock of weights is unpacked once, times its scales, into words (r16_words.h), and then
// met by every column's q as words: one multiply-add of pairs does two exact products a lane, with
// nothing to do per sub-block. The 32-bit sums are put away as 256 * th + tl before they can
// overflow.
//
// Included by the translation units of single instruction sets: internal linkage only.
#pragma once

#include <type_traits>

#include "device/cpu/products/r16_words.h"
#include "device/cpu/products/tile.h"

namespace muser::device::cpu {
namespace {

// acc + the sum of each dword's two products.
MUSER_INLINE Ints dot_pairs(Ints acc, Shorts a, Shorts b) {
#if defined(__AVX512VNNI__)
    return reinterpret_cast<Ints>(_mm512_dpwssd_epi32(reinterpret_cast<__m512i>(acc),
                                                      reinterpret_cast<__m512i>(a),
                                                      reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
    return acc + reinterpret_cast<Ints>(
                     _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__aarch64__)
    const int16x8_t x = a, y = b;
    const Ints low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
    const Ints high = vmull_high_s16(x, y);
    return acc + reinterpret_cast<Ints>(vpaddq_s32(low, high));
#else
    return acc + reinterpret_cast<Ints>(
                     _mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}

// f32 of 256 * th + tl (numerics 0).
MUSER_INLINE Floats total(Ints th, Ints tl) {
    const Ints a = (th >> 8) + (tl >> 16);
    const Ints b = ((th & 255) << 8) + (tl & 65535);
    return fma(__builtin_convertvector(a, Floats), splat(65536.0f),
               __builtin_convertvector(b, Floats));
}

// One superblock of one column: q as words in the panel's order, and the sums of 32 q as
// low + 64 * high to meet the panel's mins.
struct alignas(64) ColumnWords {
    int32_t even[64], odd[64];
    int32_t mins[8];
    float s;
};
MUSER_INLINE void widen_planes(const int8_t* hi, const int8_t* lo, int32_t even[64],
                               int32_t odd[64]) {
    for (uint32_t i = 0; i < 64; i += kLanes) {
        const Shorts h = load_as<Shorts>(hi + 4 * i);
        const Shorts l = load_as<Shorts>(lo + 4 * i);
        store(even + i, (h << 8) + ((l << 8) >> 8));
        store(odd + i, (h & static_cast<short>(0xff00)) + (l >> 8));
    }
}
MUSER_INLINE int32_t split_sum(int32_t sum) {
    return static_cast<int32_t>((sum & 63) | static_cast<uint32_t>(sum >> 6) << 16);
}
MUSER_INLINE void widen(const BlockForm& x, uint32_t block, ColumnWords& out) {
    widen_planes(x.hi + 256 * block, x.lo + 256 * block, out.even, out.odd);
    const int32_t* sums = x.sums + 16 * block;
    for (int j = 0; j < 8; ++j) out.mins[j] = split_sum(sums[2 * j] + sums[2 * j + 1]);
    out.s = x.scales[block];
}

// Dwords that a 32-bit sum can take: scale * w is at most 945, 1953, 4096 and 128, q 32639, and
// each dword brings four products.
template <class Block>
constexpr uint32_t kDwordsPerSum = 16;
template <>
constexpr uint32_t kDwordsPerSum<BlockQ5_K> = 8;
template <>
constexpr uint32_t kDwordsPerSum<BlockQ6_K> = 4;
template <>
constexpr uint32_t kDwordsPerSum<BlockQ8_0> = 8;  // a block, which wants its own sum

constexpr uint32_t kWordColumns = 4;  // columns and panels at a time, in registers
constexpr uint32_t kWordPanels = 2;
constexpr uint32_t kWordSlab = 64;    // rows that share a widening of the columns
constexpr uint32_t kWordChunk = 128;  // columns that share an unpacking of the rows
constexpr uint32_t kSlabPanels = kWordSlab / kLanes;

MUSER_INLINE Shorts splat_dword(int32_t value) {
    const Ints zero = {};
    return reinterpret_cast<Shorts>(zero + value);
}

// kPanels times kColumns results take in one superblock. y: [column][row], kWordSlab apart.
template <class Block, uint32_t kPanels, uint32_t kColumns>
void multiply_words(const WordPanel* panels, const ColumnWords* columns, float* y) {
    constexpr bool kBlocks = std::is_same_v<Block, BlockQ8_0>;
    constexpr uint32_t kDwords = kDwordsPerSum<Block>;
    Ints th[kPanels][kColumns] = {}, tl[kPanels][kColumns] = {};
    Floats acc[kPanels][kColumns];
    for (uint32_t p = 0; p < kPanels; ++p) {
        for (uint32_t c = 0; c < kColumns; ++c) acc[p][c] = load(y + c * kWordSlab + p * kLanes);
    }
    for (uint32_t first = 0; first < 64; first += kDwords) {
        Ints sum[kPanels][kColumns] = {};
#pragma GCC unroll 2
        for (uint32_t e = first; e < first + kDwords; ++e) {
#pragma GCC unroll 4
            for (uint32_t c = 0; c < kColumns; ++c) {
                const Shorts even = splat_dword(columns[c].even[e]);
                const Shorts odd = splat_dword(columns[c].odd[e]);
#pragma GCC unroll 2
                for (uint32_t p = 0; p < kPanels; ++p) {
                    sum[p][c] = dot_pairs(sum[p][c], panels[p].even[e], even);
                    sum[p][c] = dot_pairs(sum[p][c], panels[p].odd[e], odd);
                }
            }
        }
#pragma GCC unroll 2
        for (uint32_t p = 0; p < kPanels; ++p) {
#pragma GCC unroll 4
            for (uint32_t c = 0; c < kColumns; ++c) {
                if constexpr (kBlocks) {
                    acc[p][c] = fma(panels[p].d[first / 8] * splat(columns[c].s),
                                    __builtin_convertvector(sum[p][c], Floats), acc[p][c]);
                } else {
                    th[p][c] += sum[p][c] >> 8;
                    tl[p][c] += sum[p][c] & 255;
                }
            }
        }
    }
    for (uint32_t p = 0; p < kPanels; ++p) {
        for (uint32_t c = 0; c < kColumns; ++c) {
            const Floats s = splat(columns[c].s);
            if constexpr (!kBlocks) {
                acc[p][c] = fma(panels[p].d[0] * s, total(th[p][c], tl[p][c]), acc[p][c]);
            }
            if constexpr (WeightTraits<Block>::kMins) {
                Ints m = {};
                for (int j = 0; j < 8; ++j) {
                    m = dot_pairs(m, reinterpret_cast<Shorts>(panels[p].mins[j]),
                                  splat_dword(columns[c].mins[j]));
                }
                acc[p][c] =
                    fma(-(panels[p].dmin * s), __builtin_convertvector(m, Floats), acc[p][c]);
            }
            store(y + c * kWordSlab + p * kLanes, acc[p][c]);
        }
    }
}

template <class Block, uint32_t kColumns>
void multiply_slab(const WordPanel* panels, uint32_t count, const ColumnWords* columns, float* y) {
    uint32_t p = 0;
    for (; p + kWordPanels <= count; p += kWordPanels) {
        multiply_words<Block, kWordPanels, kColumns>(panels + p, columns, y + p * kLanes);
    }
    for (; p < count; ++p) {
        multiply_words<Block, 1, kColumns>(panels + p, columns, y + p * kLanes);
    }
}

// Rows [row, end) (at most kWordSlab) against columns [first, first + count).
template <class Block>
void word_slab(const Tile& t, uint64_t row, uint64_t end, uint32_t first, uint32_t count) {
    const uint32_t blocks = t.cols / 256;
    const uint64_t group_bytes = r16_group_bytes<Block>(blocks);
    const auto panel_count =
        static_cast<uint32_t>((end - row + kRowGroup - 1) / kRowGroup * kParts);
    const auto* matrix =
        reinterpret_cast<const uint8_t*>(t.weights) + row / kRowGroup * group_bytes;
    alignas(64) float y[kWordChunk * kWordSlab];
    WordPanel panels[kSlabPanels];
    ColumnWords columns[kWordColumns];
    __builtin_memset(y, 0, count * kWordSlab * sizeof *y);
    for (uint32_t b = 0; b < blocks; ++b) {
        for (uint32_t p = 0; p < panel_count; ++p) {
            const uint8_t* group = matrix + p / kParts * group_bytes;
            unpack(static_cast<const Block*>(nullptr),
                   group + R16<Block>::header_bytes(blocks) + b * R16<Block>::kBlockLines * kLine,
                   group + 32 * b, p % kParts, panels[p]);
        }
        for (uint32_t c = 0; c < count; c += kWordColumns) {
            const uint32_t now = min_u32(kWordColumns, count - c);
            for (uint32_t i = 0; i < now; ++i) {
                widen(block_form(t.vectors, t.cols, first + c + i), b, columns[i]);
            }
            float* to = y + c * kWordSlab;
            if (now == 4) multiply_slab<Block, 4>(panels, panel_count, columns, to);
            if (now == 3) multiply_slab<Block, 3>(panels, panel_count, columns, to);
            if (now == 2) multiply_slab<Block, 2>(panels, panel_count, columns, to);
            if (now == 1) multiply_slab<Block, 1>(panels, panel_count, columns, to);
        }
    }
    for (uint32_t c = 0; c < count; ++c) {
        __builtin_memcpy(t.y + uint64_t{first + c} * t.y_stride + (row - t.first_row),
                         y + c * kWordSlab, (end - row) * sizeof *y);
    }
}

template <class Block>
void word_columns(const Tile& t) {
    for (uint64_t row = t.first_row; row < t.end_row; row += kWordSlab) {
        for (uint32_t c = 0; c < t.columns; c += kWordChunk) {
            word_slab<Block>(t, row, min_u64(row + kWordSlab, t.end_row), c,
                             min_u32(kWordChunk, t.columns - c));
        }
    }
}

}  // namespace
}  // namespace muser::device::cpu
