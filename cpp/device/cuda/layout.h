// The layout "_r32": groups of 32 interleaved rows (metal/kernels/cuda/r32_types.cuh).
#pragma once

#include <cstdint>

#include "device/device.h"

namespace muser::device::cuda {

inline constexpr uint32_t kGroupRows = 32;

struct R32Shape {
    uint32_t type = 0;       // MuserR32Type
    uint32_t row_bytes = 0;  // of one superblock of one row, as in ggml
    uint32_t pairs = 0;      // of the contract's chain, per superblock
    uint64_t group_bytes() const { return uint64_t{row_bytes} * kGroupRows; }
};

// Null for types that stay in ggml's own rows.
const R32Shape* r32_shape(uint32_t ggml_type);

WeightLayout weight_layout(const WeightShape& shape);

}  // namespace muser::device::cuda
