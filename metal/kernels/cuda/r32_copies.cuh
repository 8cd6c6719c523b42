// Superblocks of weights and activations on their way to shared memory (layout: r32_types.cuh).
#pragma once

#include "grid.cuh"
#include "r32_types.cuh"

// Superblock b of a block form of n on its way to shared memory: lanes 0 to 15 ask for a piece of
// the high bytes, 16 to 31 for one of the low bytes.
static __device__ __forceinline__ void r32_fetch_activations(R32Activations* x, const uchar* form,
                                                             uint n, uint b, uint lane) {
    const uchar* plane = form + (lane < 16 ? 0 : MUSER_BLOCK_LO(n)) + MUSER_BLOCK * b;
    copy_16_async(r32_plane_piece(x, lane), plane + 16 * (lane & 15));
    const uchar* sums = form + MUSER_BLOCK_SUMS(n) + 64 * b;
    if (lane < 4) copy_16_async(x->sums + 4 * lane, sums + 16 * lane);
    if (lane == 4) copy_4_async(&x->s, form + MUSER_BLOCK_SCALES(n) + 4 * b);
}

// The same by way of registers.
struct R32Load {
    uint4 planes;
    int sum;  // lanes 0 to 15
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
static __device__ __forceinline__ void r32_store_activations(R32Activations* x, const R32Load& load,
                                                             uint lane) {
    __syncwarp();  // the superblock before is done with
    *r32_plane_piece(x, lane) = load.planes;
    if (lane < 16) x->sums[lane] = load.sum;
    if (lane == 0) x->s = load.s;
    __syncwarp();
}

// A superblock of weights on its way to shared memory: pieces first ... past - 1, and the tail with
// the last.
template <typename Type>
static __device__ __forceinline__ void r32_fetch_pieces(uint4* place, const uchar* from, uint first,
                                                        uint past, uint lane, uint64_t policy) {
    const uchar* mine = from + 16 * lane;  // constant distances from here on
#pragma unroll
    for (uint p = first; p < past; ++p) {
        copy_16_async_once(place + 32 * p + lane, mine + size_t{512} * p, policy);
    }
    if (past == Type::kPieces && 16 * lane < Type::kTail) {
        copy_16_async_once(place + 32 * Type::kPieces + lane, mine + 512 * Type::kPieces, policy);
    }
}
template <typename Type>
static __device__ __forceinline__ void r32_fetch(uint4* place, const uchar* from, uint lane,
                                                 uint64_t policy) {
    r32_fetch_pieces<Type>(place, from, 0, Type::kPieces, lane, policy);
}
