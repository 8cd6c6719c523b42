// Products of quantised matrices in groups of 32 interleaved rows with one block-form vector, and
// the gate and up products with SwiGLU (docs/numerics.md §2, §6). Layout: r32_types.cuh.
//
// A block takes one group of 32 rows, or two: 64 rows of a matrix so large that there are blocks
// enough, or 32 rows of gate and up. Its warps take
// superblocks in turn (warp, warp + warps, ...): all of a superblock's integers are exact whoever
// makes them. They leave (coefficient, integer) pairs in shared memory, and one warp per group, a
// lane per row, runs the contract's chain over them in order.
//
// A block starts while the kernels in front still run: it asks for its first weights before it
// waits for the activations.
#include "../block_form.h"
#include "r32_types.cuh"

// The warp's next superblock of weights on its way to shared memory.
template <typename Type>
static __device__ __forceinline__ uint r32_fetch(uint4* stage, const uchar* chunk, uint lane,
                                                 uint64_t policy) {
#pragma unroll
    for (uint p = 0; p < Type::kPieces; ++p) {
        copy_16_async_once(stage + 32 * p + lane, chunk + 16 * (32 * p + lane), policy);
    }
    if (Type::kTail == 0) return 0;
    return __ldg(reinterpret_cast<const ushort*>(chunk + 512 * Type::kPieces) + lane);
}

// What a lane carries of a superblock of activations from global to shared memory.
struct R32Load {
    uint4 planes;  // lanes 0 to 15: hi, 16 to 31: lo
    int sum;       // lanes 0 to 15
    float s;
};
static __device__ __forceinline__ R32Load r32_load_activations(const uchar* form, uint n, uint b,
                                                               uint lane) {
    R32Load load;
    const uchar* plane = form + (lane < 16 ? 0 : MUSER_BLOCK_LO(n)) + MUSER_BLOCK * b;
    load.planes = __ldcg(reinterpret_cast<const uint4*>(plane) + (lane & 15));
    const int* sums = reinterpret_cast<const int*>(form + MUSER_BLOCK_SUMS(n));
    load.sum = __ldcg(sums + 16 * b + (lane & 15));
    load.s = __ldcg(reinterpret_cast<const float*>(form + MUSER_BLOCK_SCALES(n)) + b);
    return load;
}
template <typename Type>
static __device__ __forceinline__ void r32_store_activations(R32Activations* x, R32Load load,
                                                             uint lane) {
    __syncwarp();               // the superblock before is done with
    x->hi[lane] = load.planes;  // lanes 16 to 31 reach into lo
    const int next = __shfl_xor_sync(0xffffffffu, load.sum, 1);
    if (Type::kPairSums != 0) {
        if (lane < 16 && (lane & 1) == 0) x->sums[lane / 2] = load.sum + next;
    } else if (lane < 16) {
        x->sums[lane] = load.sum;
    }
    __syncwarp();
}

static __device__ __forceinline__ float r32_chain(const float2* pairs, uint count, float acc) {
#pragma unroll 8
    for (uint i = 0; i < count; ++i) {
        const float2 pair = pairs[32 * i];
        acc = MUSER_FMA(pair.x, pair.y, acc);
    }
    return acc;
}

struct R32Shared {
    uint4* stage;
    R32Activations* x;
    float2* pairs;
};

// `weights` are the N groups. On return lane r of warp i has row r's product in group i.
template <typename Type, uint N>
static __device__ __forceinline__ float r32_rows(const MuserProductArgs& args,
                                                 const MuserProductPart& part, uint column,
                                                 const uchar* const (&weights)[N],
                                                 const R32Shared& shared) {
    const uint lane = threadIdx.x & 31u;
    const uint warp = threadIdx.x >> 5;
    const uint warps = blockDim.x >> 5;
    const uint nb = args.blocks;
    const uint n = MUSER_BLOCK * nb;
    const size_t bytes = r32_group_bytes<Type>();
    const uint64_t policy = weights_policy();
    const uint4* mine[N];
#pragma unroll
    for (uint i = 0; i < N; ++i) mine[i] = shared.stage + 32 * Type::kPieces * i + lane;

    uint b = warp;
    uint tails[N] = {};
    if (b < nb) {
#pragma unroll
        for (uint i = 0; i < N; ++i) {
            tails[i] = r32_fetch<Type>(shared.stage + 32 * Type::kPieces * i,
                                       weights[i] + b * bytes, lane, policy);
        }
    }
    wait_for_previous();
    const uchar* form = reinterpret_cast<const uchar*>(part.form) +
                        column * static_cast<size_t>(MUSER_BLOCK_FORM_STRIDE(size_t(n)));
    R32Load load;
    if (b < nb) load = r32_load_activations(form, n, b, lane);

    float acc = 0.0f;
    for (uint first = 0; first < nb; first += args.span) {
        const uint end = min(first + args.span, nb);
        for (; b < end; b += warps) {
            r32_store_activations<Type>(shared.x, load, lane);
            const float s = load.s;
            if (b + warps < nb) load = r32_load_activations(form, n, b + warps, lane);
            wait_for_copies();
            float2* pairs = shared.pairs + 32 * Type::kPairs * (b - first) + lane;
            R32Pairs out[N];
#pragma unroll
            for (uint i = 0; i < N; ++i) out[i].at = pairs + 32 * Type::kPairs * args.span * i;
            Type::step(mine, tails, *shared.x, s, out);
            // A lane reads only what it copied itself, so no other can still need the stage.
            if (b + warps < nb) {
#pragma unroll
                for (uint i = 0; i < N; ++i) {
                    tails[i] = r32_fetch<Type>(shared.stage + 32 * Type::kPieces * i,
                                               weights[i] + (b + warps) * bytes, lane, policy);
                }
            }
        }
        __syncthreads();
        if (warp < N) {
            acc = r32_chain(shared.pairs + 32 * Type::kPairs * warp * args.span + lane,
                            Type::kPairs * (end - first), acc);
        }
        if (end < nb) __syncthreads();
    }
    return acc;
}

template <typename Type, uint N>
static __device__ __forceinline__ void r32_product(const MuserProductArgs& args,
                                                   const MuserProductPart& part, uint block,
                                                   const R32Shared& shared) {
    const size_t bytes = args.blocks * r32_group_bytes<Type>();
    const uint last = (part.rows - 1) / MUSER_R32_ROWS;
    const uchar* weights[N];
#pragma unroll
    for (uint i = 0; i < N; ++i) {
        // An odd last group is worked on twice.
        weights[i] = reinterpret_cast<const uchar*>(part.weight) + min(N * block + i, last) * bytes;
    }
    const float acc = r32_rows<Type, N>(args, part, blockIdx.y, weights, shared);
    const uint row = N * MUSER_R32_ROWS * block + threadIdx.x;
    if (threadIdx.x < N * MUSER_R32_ROWS && row < part.rows) {
        reinterpret_cast<float*>(part.y)[static_cast<size_t>(blockIdx.y) * part.rows + row] = acc;
    }
}

// The block of the last of the eight groups that make 256 results writes their block form.
template <typename Type>
static __device__ __forceinline__ void r32_silu(const MuserProductArgs& args,
                                                const MuserProductPart& part, uint group,
                                                const R32Shared& shared) {
    const uint column = blockIdx.y;
    const uint lane = threadIdx.x & 31u;
    const size_t bytes = args.blocks * r32_group_bytes<Type>();
    const uchar* const weights[2] = {reinterpret_cast<const uchar*>(part.weight) + group * bytes,
                                     reinterpret_cast<const uchar*>(part.weight2) + group * bytes};
    const float acc = r32_rows<Type, 2>(args, part, column, weights, shared);
    // Warp 1 has the up products. All activations are done with: the chains came after a barrier.
    float* ups = reinterpret_cast<float*>(shared.x - (threadIdx.x >> 5));
    if (threadIdx.x >= 32 && threadIdx.x < 64) ups[lane] = acc;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    const uint row = MUSER_R32_ROWS * group + lane;
    float* y = reinterpret_cast<float*>(part.y) + static_cast<size_t>(column) * part.rows;
    if (row < part.rows) y[row] = muser_silu_mul(acc, ups[lane]);
    if (part.y_blocks == 0) return;

    const uint block = group / 8;
    uint* counter = reinterpret_cast<uint*>(part.counters) +
                    static_cast<size_t>(column) * part.y_blocks + block;
    __threadfence();
    __syncwarp();
    uint arrived = 0;
    if (lane == 0) arrived = atomicAdd(counter, 1u);
    arrived = __shfl_sync(0xffffffffu, arrived, 0);
    if (arrived != 7) return;
    __threadfence();
    if (lane == 0) *counter = 0;
    const float4* from = reinterpret_cast<const float4*>(y + MUSER_BLOCK * block + 8 * lane);
    const float4 a = __ldcg(from);
    const float4 b = __ldcg(from + 1);
    Eight values;
    values.v[0] = a.x;
    values.v[1] = a.y;
    values.v[2] = a.z;
    values.v[3] = a.w;
    values.v[4] = b.x;
    values.v[5] = b.y;
    values.v[6] = b.z;
    values.v[7] = b.w;
    uchar* form =
        reinterpret_cast<uchar*>(part.y_form) +
        column * static_cast<size_t>(MUSER_BLOCK_FORM_STRIDE(static_cast<size_t>(part.rows)));
    write_block(form, part.rows, block, values, lane);
}

static __device__ __forceinline__ R32Shared r32_shared(const MuserProductArgs& args,
                                                       uint4* memory) {
    const uint warp = threadIdx.x >> 5;
    const uint warps = blockDim.x >> 5;
    char* at = reinterpret_cast<char*>(memory);
    R32Shared shared;
    shared.stage = reinterpret_cast<uint4*>(at + warp * args.stage_bytes);
    at += warps * args.stage_bytes;
    shared.x = reinterpret_cast<R32Activations*>(at) + warp;
    shared.pairs = reinterpret_cast<float2*>(at + warps * sizeof(R32Activations));
    return shared;
}

template <uint N>
static __device__ __forceinline__ void r32_products(const MuserProductArgs& args, uint4* memory) {
    let_next_start();
    uint p = 0;
    while (p + 1 < args.parts && blockIdx.x >= args.part[p + 1].first_block) ++p;
    const MuserProductPart& part = args.part[p];
    const uint block = blockIdx.x - part.first_block;
    const R32Shared shared = r32_shared(args, memory);
    switch (part.type) {
        case MUSER_R32_Q4_K:
            r32_product<R32Q4K, N>(args, part, block, shared);
            break;
        case MUSER_R32_Q5_K:
            r32_product<R32Q5K, N>(args, part, block, shared);
            break;
        case MUSER_R32_Q6_K:
            r32_product<R32Q6K, N>(args, part, block, shared);
            break;
        default:
            r32_product<R32Q80, N>(args, part, block, shared);
            break;
    }
}

extern "C" __global__ void __launch_bounds__(32 * MUSER_R32_WARPS_ONE, 2)
    muser_products_r32(const __grid_constant__ MuserProductArgs args) {
    extern __shared__ uint4 memory[];
    r32_products<1>(args, memory);
}

extern "C" __global__ void __launch_bounds__(32 * MUSER_R32_WARPS_TWO, 2)
    muser_products_wide_r32(const __grid_constant__ MuserProductArgs args) {
    extern __shared__ uint4 memory[];
    r32_products<2>(args, memory);
}

extern "C" __global__ void __launch_bounds__(32 * MUSER_R32_WARPS_TWO, 2)
    muser_products_silu_r32(const __grid_constant__ MuserProductArgs args) {
    extern __shared__ uint4 memory[];
    let_next_start();
    const MuserProductPart& part = args.part[0];
    const R32Shared shared = r32_shared(args, memory);
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
