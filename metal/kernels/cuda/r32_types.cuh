// Superblocks of 32 interleaved rows ("_r32"; docs/numerics.md §2), and the activations that they
// meet.
//
// A superblock of a group is `kPieces` runs of 32 times 16 bytes. Of Q5_K, piece p of row r is what
// ggml has at byte 16 p of row r's superblock. Of Q8_0, piece 0 of row r holds its eight d, and two
// pieces follow for each block of 32.
//
// Of Q4_K and Q6_K, 16 bytes are what a lane (g, j) = (lane / 4, lane mod 4) of the matrix product
// needs at once (r32_pack.cuh):
// - Q4_K's piece 0: for row g + 8 i the scales of runs j and 4 + j, for row g + 8 j all minima, d
//   and dmin. Pieces 1 to 8: fragments of nibbles, as in ggml two to a byte.
// - Q6_K's pieces 0 to 11: three words for each of its sixteen fragments, of weights less 32. Piece
//   12: for row g + 8 i the scales of runs j, 4 + j, 8 + j and 12 + j. Then d of each row, f16.
// Numbers of 6 bits are four to a word, and four words are three: the fourth is in what the others
// leave.
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

// Four words of numbers of 6 bits, times four, from the three they are packed in.
struct R32Unpacked {
    uint word[4];
};
static __device__ __forceinline__ R32Unpacked r32_unpack(uint a, uint b, uint c) {
    return {{a & 0xfcfcfcfcu, b & 0xfcfcfcfcu, c & 0xfcfcfcfcu,
             ((a << 6) & 0xc0c0c0c0u) | ((b << 4) & 0x30303030u) | ((c << 2) & 0x0c0c0c0cu)}};
}

template <typename Type>
static __device__ __forceinline__ constexpr uint r32_group_bytes() {
    return 512 * Type::kPieces + Type::kTail;
}
