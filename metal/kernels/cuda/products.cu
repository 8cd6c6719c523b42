// The products' entry points: one or two groups of rows to a block, and gate and up with SwiGLU.
#include "../block_form.h"
#include "product_groups.cuh"

template <uint N, bool kDeep>
static __device__ __forceinline__ void r32_products(const MuserProductArgs& args, uint4* memory) {
    let_next_start();
    uint p = 0;
    while (p + 1 < args.parts && N * blockIdx.x >= args.part[p + 1].first_group) ++p;
    const MuserProductPart& part = args.part[p];
    const uint block = blockIdx.x - part.first_group / N;
    const R32Shared shared = r32_shared(args, N, memory);
    switch (part.type) {
        case MUSER_R32_Q4_K:
            r32_product<R32Q4K, N, kDeep>(args, part, block, shared);
            break;
        case MUSER_R32_Q5_K:
            r32_product<R32Q5K, N, kDeep>(args, part, block, shared);
            break;
        case MUSER_R32_Q6_K:
            r32_product<R32Q6K, N, kDeep>(args, part, block, shared);
            break;
        default:
            r32_product<R32Q80, N, kDeep>(args, part, block, shared);
            break;
    }
}
extern "C" __global__ void __launch_bounds__(32 * MUSER_R32_WARPS_ONE, 2)
    muser_products_r32(const __grid_constant__ MuserProductArgs args) {
    extern __shared__ uint4 memory[];
    r32_products<1, false>(args, memory);
}
extern "C" __global__ void __launch_bounds__(32 * MUSER_R32_WARPS_DEEP, 2)
    muser_products_deep_r32(const __grid_constant__ MuserProductArgs args) {
    extern __shared__ uint4 memory[];
    r32_products<1, true>(args, memory);
}
extern "C" __global__ void __launch_bounds__(32 * MUSER_R32_WARPS_TWO, 2)
    muser_products_wide_r32(const __grid_constant__ MuserProductArgs args) {
    extern __shared__ uint4 memory[];
    r32_products<2, false>(args, memory);
}

static __device__ __forceinline__ void r32_silus(const MuserProductArgs& args, uint4* memory) {
    let_next_start();
    const MuserProductPart& part = args.part[0];
    const R32Shared shared = r32_shared(args, 2, memory);
    switch (part.type) {
        case MUSER_R32_Q4_K:
            r32_silu<R32Q4K>(args, part, blockIdx.x, shared);
            break;
        case MUSER_R32_Q5_K:
            r32_silu<R32Q5K>(args, part, blockIdx.x, shared);
            break;
        case MUSER_R32_Q6_K:
            r32_silu<R32Q6K>(args, part, blockIdx.x, shared);
            break;
        default:
            r32_silu<R32Q80>(args, part, blockIdx.x, shared);
            break;
    }
}
extern "C" __global__ void __launch_bounds__(32 * MUSER_R32_WARPS_TWO, 2)
    muser_products_silu_r32(const __grid_constant__ MuserProductArgs args) {
    extern __shared__ uint4 memory[];
    r32_silus(args, memory);
}
extern "C" __global__ void __launch_bounds__(32 * MUSER_R32_WARPS_SMALL, MUSER_R32_SMALL_BLOCKS)
    muser_products_silu_small_r32(const __grid_constant__ MuserProductArgs args) {
    extern __shared__ uint4 memory[];
    r32_silus(args, memory);
}
