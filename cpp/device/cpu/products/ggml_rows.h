// Products over ggml's own rows (layout ""), in plain C++: what the portable instruction set runs,
// and what every other one runs where a matrix was not repacked. The integer loops are written for
// the compiler's vectoriser (a 16-bit multiply-add of pairs exists everywhere).
//
// Included by the translation units of single instruction sets: internal linkage only.
#pragma once

#include "device/cpu/lanes_math.h"
#include "device/cpu/products/tile.h"
#include "device/cpu/products/weights.h"

namespace muser::device::cpu {
namespace {

// Columns that share one unpacking of the weights; bounds the scratch.
constexpr uint32_t kGgmlRowsColumns = 64;

// q of one superblock as 16-bit integers.
static inline void widen_q(const BlockForm& x, uint32_t block, int16_t q[256]) {
    const int8_t* hi = x.hi + 256 * block;
    const int8_t* lo = x.lo + 256 * block;
    for (int i = 0; i < 256; ++i) q[i] = static_cast<int16_t>(256 * hi[i] + lo[i]);
}

static inline int64_t dot_scaled(const int16_t w[256], const int16_t q[256]) {
    int64_t total = 0;
    for (int part = 0; part < 16; ++part) {
        int32_t sum = 0;
        for (int i = 0; i < 16; ++i) sum += w[16 * part + i] * q[16 * part + i];
        total += sum;
    }
    return total;
}

template <class Block>
void ggml_rows_chunk(const Tile& t, uint64_t first_row, uint32_t rows, uint32_t first_column,
                     uint32_t columns) {
    const uint32_t blocks = t.cols / 256;
    const uint64_t row_bytes = uint64_t{blocks} * WeightTraits<Block>::kSuperblockBytes;
    const std::byte* weights = t.weights + first_row * row_bytes;
    float acc[kGgmlRowsColumns][kRowGroup];
    for (uint32_t c = 0; c < columns; ++c) {
        for (uint32_t r = 0; r < kRowGroup; ++r) acc[c][r] = 0.0f;
    }
    ScaledSuperblock w[kRowGroup];
    for (uint32_t b = 0; b < blocks; ++b) {
        for (uint32_t r = 0; r < rows; ++r) {
            const auto* row = reinterpret_cast<const Block*>(weights + r * row_bytes);
            unpack(row[b], w[r]);
        }
        for (uint32_t c = 0; c < columns; ++c) {
            const BlockForm x = block_form(t.vectors, t.cols, first_column + c);
            int16_t q[256];
            widen_q(x, b, q);
            const float s = x.scales[b];
            const int32_t* sums = x.sums + 16 * b;
            for (uint32_t r = 0; r < rows; ++r) {
                const auto total = static_cast<float>(dot_scaled(w[r].w, q));
                float a =
                    contract::fma(contract::mul(contract::f16_to_f32(w[r].d), s), total, acc[c][r]);
                if constexpr (WeightTraits<Block>::kMins) {
                    int32_t m = 0;
                    for (int j = 0; j < 8; ++j) m += w[r].mins[j] * (sums[2 * j] + sums[2 * j + 1]);
                    a = contract::fma(-contract::mul(contract::f16_to_f32(w[r].dmin), s),
                                      static_cast<float>(m), a);
                }
                acc[c][r] = a;
            }
        }
    }
    for (uint32_t c = 0; c < columns; ++c) {
        float* y = t.y + (first_column + c) * t.y_stride + (first_row - t.first_row);
        for (uint32_t r = 0; r < rows; ++r) y[r] = acc[c][r];
    }
}

// Q8_0 accumulates once per 32 weights.
template <>
void ggml_rows_chunk<BlockQ8_0>(const Tile& t, uint64_t first_row, uint32_t rows,
                                uint32_t first_column, uint32_t columns) {
    const uint32_t blocks = t.cols / 32;
    for (uint32_t c = 0; c < columns; ++c) {
        const BlockForm x = block_form(t.vectors, t.cols, first_column + c);
        float acc[kRowGroup] = {};
        for (uint32_t b = 0; b < blocks; ++b) {
            int16_t q[32];
            for (int i = 0; i < 32; ++i) {
                q[i] = static_cast<int16_t>(256 * x.hi[32 * b + i] + x.lo[32 * b + i]);
            }
            const float s = x.scales[b / 8];
            for (uint32_t r = 0; r < rows; ++r) {
                const auto& w = reinterpret_cast<const BlockQ8_0*>(
                    t.weights)[(first_row + r) * uint64_t{blocks} + b];
                int32_t sum = 0;
                for (int i = 0; i < 32; ++i) sum += static_cast<int16_t>(w.qs[i]) * q[i];
                acc[r] = contract::fma(contract::mul(contract::f16_to_f32(w.d), s),
                                       static_cast<float>(sum), acc[r]);
            }
        }
        float* y = t.y + (first_column + c) * t.y_stride + (first_row - t.first_row);
        for (uint32_t r = 0; r < rows; ++r) y[r] = acc[r];
    }
}

template <class Block>
void ggml_rows(const Tile& t) {
    for (uint64_t row = t.first_row; row < t.end_row; row += kRowGroup) {
        const auto rows = static_cast<uint32_t>(min_u64(kRowGroup, t.end_row - row));
        for (uint32_t c = 0; c < t.columns; c += kGgmlRowsColumns) {
            ggml_rows_chunk<Block>(t, row, rows, c, min_u32(kGgmlRowsColumns, t.columns - c));
        }
    }
}

// ---- float weights: 32 partials, partial t takes k = t, t + 32, ..., then tree (numerics 2)
// ------

struct Half {
    uint16_t bits;
};
struct BFloat {
    uint16_t bits;
};
static inline float weight(const float* w) { return *w; }
static inline float weight(const Half* w) { return contract::f16_to_f32(w->bits); }
static inline float weight(const BFloat* w) { return contract::bf16_to_f32(w->bits); }
static inline Floats weights(const float* w) { return load(w); }
static inline Floats weights(const Half* w) { return load_f16(&w->bits); }
static inline Floats weights(const BFloat* w) {
    return from_bits(__builtin_convertvector(load_as<Halves>(&w->bits), Words) << 16);
}

template <class Weight>
static inline float float_row(const Weight* w, const float* x, uint32_t n) {
    Floats partials[kPartialVectors] = {};
    uint32_t k = 0;
    for (; k + kPartials <= n; k += kPartials) {
        for (unsigned j = 0; j < kPartialVectors; ++j) {
            const uint32_t at = k + j * kLanes;
            partials[j] = fma(weights(w + at), load(x + at), partials[j]);
        }
    }
    if (k < n) {
        float ragged[kPartials];
        for (unsigned j = 0; j < kPartialVectors; ++j) store(ragged + j * kLanes, partials[j]);
        for (uint32_t t = 0; k + t < n; ++t)
            ragged[t] = fma(weight(w + k + t), x[k + t], ragged[t]);
        for (unsigned j = 0; j < kPartialVectors; ++j) partials[j] = load(ragged + j * kLanes);
    }
    return tree_partials(partials);
}

template <class Weight>
void float_rows(const Tile& t) {
    const auto* matrix = reinterpret_cast<const Weight*>(t.weights);
    for (uint64_t row = t.first_row; row < t.end_row; ++row) {
        for (uint32_t c = 0; c < t.columns; ++c) {
            const float* x = reinterpret_cast<const float*>(t.vectors) + uint64_t{c} * t.cols;
            t.y[c * t.y_stride + (row - t.first_row)] = float_row(matrix + row * t.cols, x, t.cols);
        }
    }
}

}  // namespace
}  // namespace muser::device::cpu
