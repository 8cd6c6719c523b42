// What every product of this folder computes: a rectangle of results, rows [first_row, end_row) of
// a matrix against some columns of activations. Kernels are made of it in kernels.h.
//
// Included by the translation units of single instruction sets: internal linkage only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/fma.h"
#include "contract/half.h"
#include "device/cpu/kernel.h"
#include "metal/kernels/args.h"

namespace muser::device::cpu {
namespace {

// Rows that one unit of a mat-vec kernel owns, and that the repacked layout interleaves.
constexpr uint32_t kRowGroup = 16;

struct Tile {
    const std::byte* weights;  // the whole matrix, in the product's layout
    uint64_t rows;             // of the matrix
    uint32_t cols;
    const std::byte* vectors;  // of the tile's first column: block forms, or f32 vectors
    uint32_t columns;
    uint64_t first_row, end_row;  // first_row is a multiple of kRowGroup
    float* y;                     // row first_row of the first column
    uint64_t y_stride;            // floats from column to column
};
using Product = void (*)(const Tile&);

// One column's activations in block form (args.h).
struct BlockForm {
    const int8_t* hi;
    const int8_t* lo;
    const int32_t* sums;
    const float* scales;
};

static inline BlockForm block_form(const std::byte* forms, uint32_t cols, uint64_t column) {
    const std::byte* base = forms + column * MUSER_BLOCK_FORM_STRIDE(cols);
    return {reinterpret_cast<const int8_t*>(base),
            reinterpret_cast<const int8_t*>(base + MUSER_BLOCK_LO(cols)),
            reinterpret_cast<const int32_t*>(base + MUSER_BLOCK_SUMS(cols)),
            reinterpret_cast<const float*>(base + MUSER_BLOCK_SCALES(cols))};
}

static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

}  // namespace
}  // namespace muser::device::cpu
