// What the products library (cpp/device/cpu/products/) offers the CPU device besides its kernels:
// the layouts that its kernels want and the repacking into them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/isa.h"
#include "device/device.h"

namespace muser::device::cpu {

// The layout in which the products of `isa` want a matrix; suffix "" for ggml's own rows. Types
// that the products do not know get "" too: asking for their kernel then fails by name.
WeightLayout product_layout(Isa isa, const WeightShape& shape);

// Rows that one repacking task covers: a multiple of every layout's row group.
inline constexpr uint64_t kRepackRows = 64;

// Repacks rows [begin, end) of the matrix whose ggml rows start at `rows` into the matrix in
// `layout` that starts at `destination`. begin is a multiple of kRepackRows; end is one too, or
// shape.rows. Ranges may be repacked at the same time by several threads.
void product_repack(Isa isa, const WeightShape& shape, const WeightLayout& layout,
                    const std::byte* rows, std::byte* destination, uint64_t begin, uint64_t end);

}  // namespace muser::device::cpu
