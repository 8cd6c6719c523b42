// Kernels (kernel.h) made of products: what a unit is, how long it takes, where results go.
//
// Included by the translation units of single instruction sets: internal linkage only.
#pragma once

#include "device/cpu/lanes_math.h"
#include "device/cpu/products/tile.h"

namespace muser::device::cpu {
namespace {

// Rough time of `rows` rows: the weights at a busy core's share of the memory, or the products.
static inline uint64_t rows_ns(uint64_t rows, uint64_t row_bytes, const MatVecArgs& args) {
    const uint64_t read = rows * row_bytes / 15;
    const uint64_t multiply = rows * args.cols * args.columns / 60;
    return 1 + (read > multiply ? read : multiply);
}

// ---- mul_mv: a unit is some groups of rows, all columns
// ------------------------------------------

// Prompt chunks gather the activations once per unit or more, so units grow where there are rows
// enough to keep many threads busy all the same.
static inline uint64_t unit_rows(const MatVecArgs& args) {
    if (args.columns < 8 || args.rows < 1024) return kRowGroup;
    return args.rows < 4096 ? 64 : 128;
}

// Groups of rows that the widest products read side by side.
constexpr uint64_t kGroupsTogether = 8;

template <uint32_t kBytesPer256>
Work mul_mv_work(const Call& call) {
    const auto args = arguments<MatVecArgs>(call);
    const uint64_t row_bytes = uint64_t{args.cols} * kBytesPer256 / 256;
    const uint64_t rows = unit_rows(args);
    return {(args.rows + rows - 1) / rows, rows_ns(rows, row_bytes, args),
            rows == kRowGroup ? kGroupsTogether : 1};
}

template <Product kProduct>
void mul_mv(const Call& call, uint64_t begin, uint64_t end) {
    const auto args = arguments<MatVecArgs>(call);
    const uint64_t first = begin * unit_rows(args);
    if (begin >= end) return;
    kProduct({
        .weights = buffer<const std::byte>(call, 1),
        .rows = args.rows,
        .cols = args.cols,
        .vectors = buffer<const std::byte>(call, 2),
        .columns = args.columns,
        .first_row = first,
        .end_row = min_u64(end * unit_rows(args), args.rows),
        .y = buffer<float>(call, 3) + first,
        .y_stride = args.rows,
    });
}

// ---- mul_mv_silu: a unit is 256 rows, so that it can write their block form
// ----------------------

constexpr uint32_t kSiluRows = 256;
// Rows and columns whose ups are kept at a time (64 KiB of scratch) until their gates are there; of
// one column a unit's rows, so that its products are not cut.
constexpr uint32_t kSiluSlab = 128, kSiluColumns = 128;

template <uint32_t kBytesPer256>
Work mul_mv_silu_work(const Call& call) {
    const auto args = arguments<MatVecArgs>(call);
    const uint64_t row_bytes = uint64_t{args.cols} * kBytesPer256 / 256;
    return {(uint64_t{args.rows} + kSiluRows - 1) / kSiluRows,
            2 * rows_ns(kSiluRows, row_bytes, args)};
}

template <Product kProduct>
void mul_mv_silu_slab(const Call& call, const MatVecArgs& args, uint64_t first, uint64_t end,
                      uint32_t column, uint32_t columns) {
    const auto n = static_cast<uint32_t>(end - first);
    alignas(64) float up[kSiluColumns * kSiluSlab];
    float* y = buffer<float>(call, 4) + uint64_t{column} * args.rows + first;
    Tile tile{
        .weights = buffer<const std::byte>(call, 1),
        .rows = args.rows,
        .cols = args.cols,
        .vectors = buffer<const std::byte>(call, 3) + column * MUSER_BLOCK_FORM_STRIDE(args.cols),
        .columns = columns,
        .first_row = first,
        .end_row = end,
        .y = y,
        .y_stride = args.rows,
    };
    kProduct(tile);
    tile.weights = buffer<const std::byte>(call, 2);
    tile.y = up;
    tile.y_stride = n;
    kProduct(tile);
    for (uint32_t c = 0; c < columns; ++c) {
        const float* u = up + c * n;
        uint32_t i = 0;
        MUSER_VECTORS(i, n) store(y + i, silu_mul(load(y + i), load(u + i)));
        for (; i < n; ++i) y[i] = silu_mul(y[i], u[i]);
        y += args.rows;
    }
}

template <Product kProduct>
void mul_mv_silu(const Call& call, uint64_t begin, uint64_t end) {
    const auto args = arguments<MatVecArgs>(call);
    for (uint64_t unit = begin; unit < end; ++unit) {
        const uint64_t first = unit * kSiluRows;
        const uint64_t last = min_u64(first + kSiluRows, args.rows);
        const uint32_t slab = args.columns == 1 ? kSiluRows : kSiluSlab;
        for (uint32_t column = 0; column < args.columns; column += kSiluColumns) {
            const uint32_t columns = min_u32(kSiluColumns, args.columns - column);
            for (uint64_t row = first; row < last; row += slab) {
                mul_mv_silu_slab<kProduct>(call, args, row, min_u64(row + slab, last), column,
                                           columns);
            }
        }
        if (args.blocks == 0) continue;
        for (uint32_t c = 0; c < args.columns; ++c) {
            quantise_block(buffer<float>(call, 4) + uint64_t{c} * args.rows + first, args.rows,
                           unit,
                           buffer<std::byte>(call, 5) + c * MUSER_BLOCK_FORM_STRIDE(args.rows));
        }
    }
}

// ---- table rows
// ----------------------------------------------------------------------------------

// Both kernels of a quantised type: MUSER_PRODUCT("q4_K", "_r16", BlockQ4_K, product).
#define MUSER_PRODUCT(type, layout, Block, product)                                       \
    {"mul_mv_" type "_b16" layout, mul_mv_work<WeightTraits<Block>::kSuperblockBytes>,    \
     mul_mv<product>},                                                                    \
    {                                                                                     \
        "mul_mv_silu_" type "_b16" layout,                                                \
            mul_mv_silu_work<WeightTraits<Block>::kSuperblockBytes>, mul_mv_silu<product> \
    }

// The kernel of a float type of `bytes` bytes.
#define MUSER_FLOAT_PRODUCT(type, bytes, product) \
    { "mul_mv_" type "_f32", mul_mv_work<256 * (bytes)>, mul_mv<product> }

}  // namespace
}  // namespace muser::device::cpu
