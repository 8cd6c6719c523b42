// Many columns against matrices in layout _r16 with AMX: prompt chunks.
//
// Each weight is multiplied by its sub-block's scale first: scale * w has at most 13 bits and sign,
// and splits into bytes, 256 * high + low. With q = 256 * hi + lo a superblock's T is then four
// plain byte products of 16 x 16 tiles over K = 256, exact in their 32-bit sums, without any work
// per sub-block:
//   T = 65536 * high.hi + 256 * (high.lo + low.hi) + low.lo
// A tile register holds 16 columns of activations (rows of A, 64 elements each) or 64 elements of
// 16 matrix rows in the very order of _r16 (B). The two products that count 256 times share an
// accumulator tile.
//
// While the tile unit multiplies one 16 x 16 piece, the vector units turn the sums of the previous
// one into floats: multiply() interleaves the two in program order, a column after each tile
// product, for the processor's window is shorter than either.
//
// Included by the translation unit of its instruction set: internal linkage only.
#pragma once

#include <immintrin.h>

#include "device/cpu/products/avx512_r16.h"

namespace muser::device::cpu {
namespace {

constexpr uint32_t kTileColumns = 16;
constexpr uint32_t kChunkColumns = 128;  // share one unpacking of the weights
constexpr uint32_t kSlabGroups = 8;      // 128 rows share one gathering of the activations,
constexpr uint32_t kHotGroups = 2;       // and so many unpacked groups stay in the first cache
constexpr uint32_t kSlabRows = kSlabGroups * kRowGroup;
// From here on tiles beat one column at a time.
constexpr uint32_t kFewestTileColumns = 4;

// One superblock of 16 rows: line e holds elements 4e ... 4e + 3 of each row.
struct alignas(64) WeightPlanes {
    uint8_t high[64][64], low[64][64];
    __m512 d, dmin;
    ScaleMins mins;
};
// One superblock of up to 16 columns.
struct alignas(64) ColumnPlanes {
    int8_t hi[4][kTileColumns][64], lo[4][kTileColumns][64];
    MinPlanes mins[kTileColumns];
    float s[kTileColumns];
};
struct alignas(64) Sums {
    int32_t top[kTileColumns][16], middle[kTileColumns][16], bottom[kTileColumns][16];
};

// ---- weights: scale, split
// -----------------------------------------------------------------------

// Byte k of each dword as both words of the dword.
template <int k>
static inline __m512i scale_words(__m512i bytes) {
    constexpr int kPick = static_cast<int>(0x80008000u) | k << 16 | k;
    return _mm512_shuffle_epi8(
        bytes, _mm512_set4_epi32(0x0c000c | kPick, 0x080008 | kPick, 0x040004 | kPick, kPick));
}
// The same for signed bytes.
template <int k>
static inline __m512i signed_scale_words(__m512i bytes) {
    constexpr int kPick = 0x00800080 | k << 24 | k << 8;
    return _mm512_srai_epi16(
        _mm512_shuffle_epi8(bytes, _mm512_set4_epi32(0x0c000c00 | kPick, 0x08000800 | kPick,
                                                     0x04000400 | kPick, kPick)),
        8);
}

// Line e of both planes from four weights (bytes 0, 2 and 1, 3 as words) and their scale.
static inline void split(WeightPlanes& out, int e, __m512i even, __m512i odd, __m512i scale) {
    const __m512i low_byte = _mm512_set1_epi16(0x00ff);
    const __m512i p = _mm512_mullo_epi16(even, scale), q = _mm512_mullo_epi16(odd, scale);
    _mm512_store_si512(out.low[e], select(low_byte, p, _mm512_slli_epi16(q, 8)));
    _mm512_store_si512(out.high[e], select(low_byte, _mm512_srli_epi16(p, 8), q));
}
static inline void split_bytes(WeightPlanes& out, int e, __m512i bytes, __m512i scale) {
    split(out, e, _mm512_and_si512(bytes, _mm512_set1_epi16(0x00ff)), _mm512_srli_epi16(bytes, 8),
          scale);
}

static inline void split_superblock(BlockQ4_K*, const uint8_t* lines, const uint8_t*,
                                    WeightPlanes& out) {
    out.mins = scale_mins(lines);
    out.d = halves(lines);
    out.dmin = halves(lines + 32);
    const auto chunk = [&](auto index) {
        constexpr int c = index;
        const __m512i scales = c < 2 ? out.mins.s03 : out.mins.s47;
        const __m512i s0 = scale_words<2 * (c % 2)>(scales);
        const __m512i s1 = scale_words<2 * (c % 2) + 1>(scales);
        for (int i = 0; i < 8; ++i) {
            const __m512i v = line(lines, 4 + 8 * c + i);
            split_bytes(out, 16 * c + i, _mm512_and_si512(v, splat8(15)), s0);
            split_bytes(out, 16 * c + 8 + i, _mm512_and_si512(_mm512_srli_epi16(v, 4), splat8(15)),
                        s1);
        }
    };
    chunk(std::integral_constant<int, 0>{});
    chunk(std::integral_constant<int, 1>{});
    chunk(std::integral_constant<int, 2>{});
    chunk(std::integral_constant<int, 3>{});
}

static inline void split_superblock(BlockQ5_K*, const uint8_t* lines, const uint8_t*,
                                    WeightPlanes& out) {
    out.mins = scale_mins(lines);
    out.d = halves(lines);
    out.dmin = halves(lines + 32);
    const __m512i scales[8] = {scale_words<0>(out.mins.s03), scale_words<1>(out.mins.s03),
                               scale_words<2>(out.mins.s03), scale_words<3>(out.mins.s03),
                               scale_words<0>(out.mins.s47), scale_words<1>(out.mins.s47),
                               scale_words<2>(out.mins.s47), scale_words<3>(out.mins.s47)};
    for (int i = 0; i < 8; ++i) {
        const __m512i high = line(lines, 8 + 5 * i);
        const __m512i shifted[4] = {_mm512_slli_epi32(high, 3), _mm512_slli_epi32(high, 1),
                                    _mm512_srli_epi32(high, 1), _mm512_srli_epi32(high, 3)};
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
            const __m512i v = line(lines, 4 + 5 * i + k);
            split_bytes(out, 8 * k + i, _mm512_and_si512(_mm512_srli_epi16(v, 3), splat8(31)),
                        scales[k]);
            split_bytes(out, 32 + 8 * k + i,
                        _mm512_and_si512(select(splat8(7), v, shifted[k]), splat8(31)),
                        scales[4 + k]);
        }
    }
}

static inline void split_superblock(BlockQ6_K*, const uint8_t* lines, const uint8_t* d,
                                    WeightPlanes& out) {
    out.d = halves(d);
    const __m512i bias = _mm512_set1_epi16(32);
    const auto quarter = [&](auto index) {
        constexpr int g = index;
        const __m512i scales[4] = {
            signed_scale_words<g>(line(lines, 0)), signed_scale_words<g>(line(lines, 1)),
            signed_scale_words<g>(line(lines, 2)), signed_scale_words<g>(line(lines, 3))};
        for (int i = 4 * g; i < 4 * g + 4; ++i) {
            const __m512i v0 = line(lines, 4 + 3 * i), v1 = line(lines, 5 + 3 * i),
                          v2 = line(lines, 6 + 3 * i);
            const __m512i top = select(splat8(0xc0), v1, _mm512_srli_epi32(v2, 2));
            const __m512i last = select(splat8(0xf0), top, _mm512_slli_epi32(v0, 2));
            const __m512i w[4] = {_mm512_srli_epi16(v0, 2), v1, v2, _mm512_srli_epi16(last, 2)};
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) {
                const __m512i bytes = _mm512_and_si512(w[k], splat8(63));
                const __m512i even = _mm512_and_si512(bytes, _mm512_set1_epi16(0x00ff));
                split(out, 16 * k + i, _mm512_sub_epi16(even, bias),
                      _mm512_sub_epi16(_mm512_srli_epi16(bytes, 8), bias), scales[k]);
            }
        }
    };
    quarter(std::integral_constant<int, 0>{});
    quarter(std::integral_constant<int, 1>{});
    quarter(std::integral_constant<int, 2>{});
    quarter(std::integral_constant<int, 3>{});
}

// ---- columns: gather
// -----------------------------------------------------------------------------

// min_planes() of one column, in vectors: byte j of each plane is sub-block j's.
static inline void gather_mins(const int32_t* sums, MinPlanes& out) {
    const __m512i s16 = _mm512_loadu_si512(sums);
    const __m512i round = _mm512_set1_epi32(128);
    const __m512i s0 = _mm512_add_epi32(s16, _mm512_srli_epi64(s16, 32));  // low dword of 64 bits
    const __m512i s1 = _mm512_srai_epi32(_mm512_add_epi32(s0, round), 8);
    const __m512i s2 = _mm512_srai_epi32(_mm512_add_epi32(s1, round), 8);
    const __m512i planes[3] = {s0, s1, s2};
    for (int p = 0; p < 3; ++p) {
        _mm_storel_epi64(reinterpret_cast<__m128i*>(out.plane[p][0]),
                         _mm512_cvtepi64_epi8(planes[p]));
    }
}

// One superblock of `columns` columns.
static inline void gather(const Tile& t, uint32_t first_column, uint32_t columns, uint32_t block,
                          ColumnPlanes& out) {
    for (uint32_t c = 0; c < columns; ++c) {
        const BlockForm x = block_form(t.vectors, t.cols, first_column + c);
        for (int k = 0; k < 4; ++k) {
            _mm512_store_si512(out.hi[k][c], _mm512_loadu_si512(x.hi + 256 * block + 64 * k));
            _mm512_store_si512(out.lo[k][c], _mm512_loadu_si512(x.lo + 256 * block + 64 * k));
        }
        gather_mins(x.sums + 16 * block, out.mins[c]);
        out.s[c] = x.scales[block];
    }
}

// ---- sums to floats
// ------------------------------------------------------------------------------

// A piece whose sums wait to be added to its results: up to 16 columns of 16 rows.
struct Piece {
    const Sums* sums;
    const WeightPlanes* weights;
    const ColumnPlanes* vectors;
    float (*y)[kRowGroup];  // its columns
};

// f32 of 65536 * a + 256 * m + d. With m = 65536 * m1 + m0, m0 a signed word: both a + 256 * m1 and
// d + 256 * m0 are below 2^24, so the fma rounds once (numerics 0).
static inline __m512 total(__m512i a, __m512i m, __m512i d) {
    const __m512i m1 = _mm512_add_epi32(m, _mm512_set1_epi32(32768));  // in the upper words
    const __m512i high = _mm512_dpwssd_epi32(a, m1, _mm512_set1_epi32(256 << 16));
    const __m512i low = _mm512_dpwssd_epi32(d, m, _mm512_set1_epi32(256));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(65536.0f),
                           _mm512_cvtepi32_ps(low));
}

template <bool kMins>
[[gnu::always_inline]] static inline void add_column(const Piece& piece, uint32_t c) {
    const Sums& sums = *piece.sums;
    float* y = piece.y[c];
    const __m512 scale = _mm512_set1_ps(piece.vectors->s[c]);
    const __m512 t = total(_mm512_load_si512(sums.top[c]), _mm512_load_si512(sums.middle[c]),
                           _mm512_load_si512(sums.bottom[c]));
    __m512 acc = _mm512_fmadd_ps(_mm512_mul_ps(piece.weights->d, scale), t, _mm512_load_ps(y));
    if constexpr (kMins) {
        const __m512i m = min_sums(piece.weights->mins, piece.vectors->mins[c]);
        acc =
            _mm512_fnmadd_ps(_mm512_mul_ps(piece.weights->dmin, scale), _mm512_cvtepi32_ps(m), acc);
    }
    _mm512_store_ps(y, acc);
}

// ---- tile products
// -------------------------------------------------------------------------------

// Tiles 0-2 are sums, 4 and 5 activations (hi, lo), 6 and 7 weights (high, low).
static inline void configure(uint32_t columns) {
    struct alignas(64) {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {};
        uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; ++i) {
        config.row_bytes[i] = 64;
        config.rows[i] = static_cast<uint8_t>(i < 6 ? columns : 16);
    }
    // gcc 12's intrinsic names only the first 8 of the 64 bytes that the instruction reads.
    __asm__ volatile("" : : "m"(config));
    _tile_loadconfig(&config);
}

// What the next superblock will read, for the second cache: its columns and weights are streams too
// short for the hardware to see, and fetching them all at once would wait for the few requests that
// the first cache can have under way. Each piece fetches its share, two lines a step.
struct Ahead {
    static constexpr uint32_t kLines = 32, kPerColumn = 12, kColumns = 2, kWeightLines = 8;
    const char* line[kLines];

    // Column i (0, 1) of this share, at superblock b.
    void column(uint32_t i, const BlockForm& x, uint32_t b) {
        constexpr int kOffsets[5] = {0, 64, 128, 192, 255};
        const char** to = line + i * kPerColumn;
        for (int k = 0; k < 5; ++k) {
            to[k] = reinterpret_cast<const char*>(x.hi + 256 * b + kOffsets[k]);
            to[5 + k] = reinterpret_cast<const char*>(x.lo + 256 * b + kOffsets[k]);
        }
        to[10] = reinterpret_cast<const char*>(x.sums + 16 * b);
        to[11] = reinterpret_cast<const char*>(x.sums + 16 * b + 15);
    }
    void weights(const uint8_t* first) {
        for (uint32_t k = 0; k < kWeightLines; ++k) {
            line[kColumns * kPerColumn + k] = reinterpret_cast<const char*>(first + k * kLine);
        }
    }
    void step(uint32_t i) const {
        _mm_prefetch(line[2 * i], _MM_HINT_T1);
        _mm_prefetch(line[2 * i + 1], _MM_HINT_T1);
    }
};

// Adds the previous piece's sums to its results and computes this one's. All 16 columns of a piece
// take part, whether they exist or not: the results have room for them.
template <bool kMins>
static inline void multiply(const ColumnPlanes& x, const WeightPlanes& w, Sums& sums,
                            const Piece& previous, const Ahead& ahead) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; ++k) {
        _tile_loadd(4, x.hi[k], 64);
        _tile_loadd(6, w.high[16 * k], 64);
        _tile_dpbssd(0, 4, 6);
        add_column<kMins>(previous, 4 * k);
        ahead.step(4 * k);
        _tile_loadd(5, x.lo[k], 64);
        _tile_dpbssd(1, 5, 6);
        add_column<kMins>(previous, 4 * k + 1);
        ahead.step(4 * k + 1);
        _tile_loadd(7, w.low[16 * k], 64);
        _tile_dpbsud(1, 4, 7);
        add_column<kMins>(previous, 4 * k + 2);
        ahead.step(4 * k + 2);
        _tile_dpbsud(2, 5, 7);
        add_column<kMins>(previous, 4 * k + 3);
        ahead.step(4 * k + 3);
    }
    _tile_stored(0, sums.top, 64);
    _tile_stored(1, sums.middle, 64);
    _tile_stored(2, sums.bottom, 64);
}

// Everything that a slab works on; first cache: weights and sums, second cache: the rest.
struct alignas(64) Slab {
    // [piece][group][column][row]: what one piece adds to is one stream. 16 columns for each piece,
    // however many it has.
    float y[kChunkColumns / kTileColumns][kSlabGroups][kTileColumns][kRowGroup];
    float nowhere[kTileColumns][kRowGroup];
    ColumnPlanes vectors[kChunkColumns / kTileColumns];
    WeightPlanes weights[kHotGroups];
    Sums sums;
};

// Where a slab's operands are.
template <class Block>
struct SlabView {
    const Tile& tile;
    const uint8_t* matrix;  // its first group
    uint32_t blocks, groups;
    uint32_t first_column, columns;
    uint32_t pieces, width;  // of equal width: a tile's time is its number of columns

    SlabView(const Tile& t, uint64_t row, uint64_t end, uint32_t first, uint32_t count)
        : tile(t),
          blocks(t.cols / 256),
          groups(static_cast<uint32_t>((end - row + kRowGroup - 1) / kRowGroup)),
          first_column(first),
          columns(count),
          pieces((count + kTileColumns - 1) / kTileColumns),
          width((count + pieces - 1) / pieces) {
        matrix = reinterpret_cast<const uint8_t*>(t.weights) + row / kRowGroup * group_bytes();
    }
    uint64_t group_bytes() const { return r16_group_bytes<Block>(blocks); }
    const uint8_t* group(uint32_t g) const { return matrix + g * group_bytes(); }
    const uint8_t* lines(uint32_t g, uint32_t b) const {
        return group(g) + R16<Block>::header_bytes(blocks) + b * R16<Block>::kBlockLines * kLine;
    }
    uint32_t piece_columns(uint32_t p) const { return min_u32(width, columns - p * width); }

    // The share of piece p and group g in fetching what follows superblock b.
    Ahead ahead(uint32_t p, uint32_t g, uint32_t b) const {
        const bool last = b + 1 == blocks;
        Ahead out;
        for (uint32_t i = 0; i < Ahead::kColumns; ++i) {
            const uint32_t c = p * width + Ahead::kColumns * g + i;
            out.column(i, block_form(tile.vectors, tile.cols, first_column + c), last ? 0 : b + 1);
        }
        const uint8_t* next = last ? lines(g + kSlabGroups, 0) : lines(g, b + 1);
        out.weights(next + p * Ahead::kWeightLines * kLine);
        return out;
    }
};

// Superblock b of groups [group, group + count) against all pieces.
template <class Block>
static inline void amx_groups(Slab& slab, const SlabView<Block>& view, uint32_t b, uint32_t group,
                              uint32_t count) {
    constexpr bool kMins = WeightTraits<Block>::kMins;
    for (uint32_t g = 0; g < count; ++g) {
        split_superblock(static_cast<Block*>(nullptr), view.lines(group + g, b),
                         view.group(group + g) + 32 * b, slab.weights[g]);
    }
    Piece previous{&slab.sums, &slab.weights[0], &slab.vectors[0], slab.nowhere};
    for (uint32_t p = 0; p < view.pieces; ++p) {
        for (uint32_t g = 0; g < count; ++g) {
            multiply<kMins>(slab.vectors[p], slab.weights[g], slab.sums, previous,
                            view.ahead(p, group + g, b));
            previous = {&slab.sums, &slab.weights[g], &slab.vectors[p], slab.y[p][group + g]};
        }
    }
    for (uint32_t c = 0; c < view.width; ++c) add_column<kMins>(previous, c);
}

// Rows [row, end) (at most kSlabRows) against columns [first, first + columns).
template <class Block>
void amx_slab(const Tile& t, uint64_t row, uint64_t end, uint32_t first, uint32_t columns) {
    const SlabView<Block> view(t, row, end, first, columns);
    Slab slab;
    __builtin_memset(slab.y, 0, view.pieces * sizeof slab.y[0]);
    configure(view.width);
    for (uint32_t b = 0; b < view.blocks; ++b) {
        for (uint32_t p = 0; p < view.pieces; ++p) {
            gather(t, first + p * view.width, view.piece_columns(p), b, slab.vectors[p]);
        }
        for (uint32_t g = 0; g < view.groups; g += kHotGroups) {
            amx_groups(slab, view, b, g, min_u32(kHotGroups, view.groups - g));
        }
    }
    for (uint32_t c = 0; c < columns; ++c) {
        float* to = t.y + uint64_t{first + c} * t.y_stride + (row - t.first_row);
        for (uint32_t g = 0; g < view.groups; ++g) {
            const uint64_t rows = min_u64(kRowGroup, end - row - g * kRowGroup);
            __builtin_memcpy(to + g * kRowGroup, slab.y[c / view.width][g][c % view.width],
                             rows * sizeof(float));
        }
    }
}

template <class Kernel>
void amx_columns(const Tile& t) {
    if (t.columns < kFewestTileColumns) return r16_columns<Kernel>(t);
    for (uint64_t row = t.first_row; row < t.end_row; row += kSlabRows) {
        for (uint32_t c = 0; c < t.columns; c += kChunkColumns) {
            amx_slab<typename Kernel::Block>(t, row, min_u64(row + kSlabRows, t.end_row), c,
                                             min_u32(kChunkColumns, t.columns - c));
        }
    }
    _tile_release();
}

}  // namespace
}  // namespace muser::device::cpu
