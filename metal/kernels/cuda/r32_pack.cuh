// From ggml's rows to the pieces of a group (layout: r32_types.cuh), a lane's 16 bytes at a time.
#pragma once

#include "r32_types.cuh"

// A superblock of 32 rows as ggml has it: the first row's, and how far rows are apart. Rows that
// the matrix does not have are zero.
struct R32Source {
    const uchar* first;
    size_t row_bytes;
    uint rows;

    __device__ __forceinline__ uint byte(uint row, uint at) const {
        return row < rows ? first[row * row_bytes + at] : 0;
    }
    __device__ __forceinline__ uint half(uint row, uint at) const {  // at an even address
        return row < rows ? *reinterpret_cast<const ushort*>(first + row * row_bytes + at) : 0;
    }
    __device__ __forceinline__ uint word(uint row, uint at) const {
        return half(row, at) | (half(row, at + 2) << 16);
    }
};

static __device__ __forceinline__ uint4 r32_four(const uint (&words)[4]) {
    uint4 out;
    out.x = words[0];
    out.y = words[1];
    out.z = words[2];
    out.w = words[3];
    return out;
}

// Word `i` of three that hold four words of 6-bit bytes: r32_unpack is the way back.
static __device__ __forceinline__ uint r32_packed(const uint (&of)[4], uint i) {
    return (of[i] << 2) | ((of[3] >> (4 - 2 * i)) & 0x03030303u);
}

// Q4_K and Q5_K: scale and minimum of a run (ggml's get_scale_min_k4).
static __device__ __forceinline__ uint r32_scale(const R32Source& from, uint row, uint run) {
    if (run < 4) return from.byte(row, 4 + run) & 63u;
    return (from.byte(row, 8 + run) & 15u) | (from.byte(row, run) >> 6 << 4);
}
static __device__ __forceinline__ uint r32_min(const R32Source& from, uint row, uint run) {
    if (run < 4) return from.byte(row, 8 + run) & 63u;
    return (from.byte(row, 8 + run) >> 4) | (from.byte(row, 4 + run) >> 6 << 4);
}

static __device__ __forceinline__ uint4 r32_q4k_piece(const R32Source& from, uint piece,
                                                      uint lane) {
    const uint g = lane / 4;
    const uint j = lane % 4;
    uint words[4];
    if (piece == 0) {
        uint of[4] = {0, 0, 0, 0};
        for (uint i = 0; i < 4; ++i) {
            of[0] |= r32_scale(from, g + 8 * i, j) << (8 * i);
            of[1] |= r32_scale(from, g + 8 * i, 4 + j) << (8 * i);
            of[2] |= r32_min(from, g + 8 * j, i) << (8 * i);
            of[3] |= r32_min(from, g + 8 * j, 4 + i) << (8 * i);
        }
        for (uint i = 0; i < 3; ++i) words[i] = r32_packed(of, i);
        words[3] = from.word(g + 8 * j, 0);
        return r32_four(words);
    }
    const uint half = (piece - 1) / 4;
    const uint pair = (piece - 1) / 2 % 2;
    for (uint i = 0; i < 4; ++i) {
        const uint row = 16 * ((piece - 1) % 2) + g + 8 * (i % 2);
        words[i] = from.word(row, 16 + 4 * (16 * half + 4 * j + 2 * pair + i / 2));
    }
    return r32_four(words);
}

// Four weights of Q6_K from `element` on, less 32 modulo 64.
static __device__ __forceinline__ uint r32_q6k_word(const R32Source& from, uint row, uint element) {
    const uint n = element / 128;
    const uint field = element / 32 % 4;
    const uint l = element % 32;
    const uint nibbles = from.word(row, 64 * n + 32 * (field % 2) + l) >> (4 * (field / 2));
    const uint tops = from.word(row, 128 + 32 * n + l) >> (2 * field);
    return ((nibbles & 0x0f0f0f0fu) | ((tops & 0x03030303u) << 4)) ^ 0x20202020u;
}

static __device__ __forceinline__ uint4 r32_q6k_piece(const R32Source& from, uint piece,
                                                      uint lane) {
    const uint g = lane / 4;
    const uint j = lane % 4;
    uint words[4];
    for (uint i = 0; i < 4; ++i) {
        if (piece == 12) {
            words[i] = 0;
            for (uint m = 0; m < 4; ++m) {
                words[i] |= from.byte(g + 8 * i, 192 + 4 * m + j) << (8 * m);
            }
            continue;
        }
        // Three words for a fragment of 16 rows and eight elements of four runs.
        const uint fragment = (4 * piece + i) / 3;
        const uint element = 16 * (fragment / 4 * 4 + j) + 8 * (fragment / 2 % 2);
        uint of[4];
        for (uint k = 0; k < 4; ++k) {
            of[k] =
                r32_q6k_word(from, 16 * (fragment % 2) + g + 8 * (k % 2), element + 4 * (k / 2));
        }
        words[i] = r32_packed(of, (4 * piece + i) % 3);
    }
    return r32_four(words);
}

static __device__ __forceinline__ uint4 r32_piece(const R32Source& from, uint type, uint piece,
                                                  uint lane) {
    if (type == MUSER_R32_Q4_K) return r32_q4k_piece(from, piece, lane);
    if (type == MUSER_R32_Q6_K) return r32_q6k_piece(from, piece, lane);
    uint words[4];
    for (uint i = 0; i < 4; ++i) {
        if (type == MUSER_R32_Q5_K) {
            words[i] = from.word(lane, 16 * piece + 4 * i);
        } else if (piece == 0) {
            words[i] = from.half(lane, 68 * i) | (from.half(lane, 68 * i + 34) << 16);
        } else {
            words[i] = from.word(lane, 34 * ((piece - 1) / 2) + 2 + 16 * ((piece - 1) % 2) + 4 * i);
        }
    }
    return r32_four(words);
}
