// How the blocks of a product share its work out and use their multiprocessors. Knows no CUDA.
#pragma once

#include <cstdint>

namespace muser::device::cuda {

struct GpuSize {
    uint32_t multiprocessors = 0;
    uint32_t shared_limit = 0;  // bytes of shared memory that a block can have
};

// One launch: products of the same activations, or (silu) gate and up together.
struct ProductSize {
    uint32_t groups = 0;       // of 32 rows; silu: of gate
    uint32_t superblocks = 0;  // of a row
    uint32_t columns = 1;
    uint32_t group_bytes = 0,
             pairs = 0;  // of a superblock of a group; the most of the launch's types
    bool silu = false;
};

// metal/kernels/cuda/product_groups.cuh: a block for
enum class ProductForm : uint8_t {
    rows,        // a group of rows
    deep,        // the same, with fewer warps that have two superblocks on their way
    wide,        // two groups
    silu,        // one of gate and one of up
    silu_small,  // the same, with fewer warps and more blocks to a multiprocessor
};

struct ProductPlan {
    ProductForm form = ProductForm::rows;
    uint32_t blocks = 1, warps = 1;
    uint32_t stages = 1;        // superblocks of a group that a warp has on their way
    uint32_t span = 1;          // superblocks between two combinations
    uint32_t shared_bytes = 0;  // of a block
};

ProductPlan plan_product(const ProductSize& size, const GpuSize& gpu);

}  // namespace muser::device::cuda
