// Superblocks of 32 interleaved rows ("_r32"; docs/numerics.md §2), and the activations that they
// meet.
//
// A superblock of a group is `kPieces` runs of 32 times 16 bytes: piece p of row r is what ggml has
// at byte 16 p of row r's superblock. Q6_K ends in 32 f16 (d). Q8_0: piece 0 holds the eight d,
// then two pieces per block of 32.
#pragma once

#include "../reduce.h"
#include "launch_args.h"

// One superblock of activations in shared memory, as a warp keeps it. The low bytes' pieces lie
// where r32_low_piece says: what lanes read of both planes at once is in different banks.
struct R32Activations {
    uint4 hi[16];
    uint4 lo[16];
    int sums[16];  // of 16 elements
    float s;
    uint padding[3];
};
static_assert(sizeof(R32Activations) == MUSER_R32_ACTIVATION_BYTES, "the host leaves this much");
static __device__ __forceinline__ uint r32_low_piece(uint piece) { return piece ^ 5; }
static __device__ __forceinline__ uint4* r32_plane_piece(R32Activations* x, uint lane) {
    return x->hi + (lane < 16 ? lane : 16 + r32_low_piece(lane & 15));  // and lo
}

// The contract's chain over `count` pairs (coefficient, f32 of an exact integer) of this lane's
// row.
static __device__ __forceinline__ float r32_chain(const float2* pairs, uint count, float acc) {
#pragma unroll 8
    for (uint i = 0; i < count; ++i) {
        const float2 pair = pairs[32 * i];
        acc = MUSER_FMA(pair.x, pair.y, acc);
    }
    return acc;
}

static __device__ __forceinline__ float r32_half(uint bits) {
    return MUSER_HALF_BITS_FLOAT(bits & 0xffffu);
}

template <typename Type>
static __device__ __forceinline__ constexpr uint r32_group_bytes() {
    return 512 * Type::kPieces + Type::kTail;
}
