// What a superblock of 32 rows and one of activations make, on the matrix units: for each row its
// pairs (coefficient, f32 of an exact integer) of the contract's chain (docs/numerics.md §2).
#pragma once

#include "r32_types.cuh"

// `step(w, x, pairs, lane, release)` of each type: `w` is the superblock in shared memory, and
// release() is called when nothing more is read from it nor from the activations x; pair i of row r
// goes to pairs[32 i + r].
//
// All is exact: m16n8k32 of u8 (weights) and s8 (activations).
// A lane is (g, j) = (lane / 4, lane mod 4). Of the weights it holds four bytes of a row g (+8) at
// a time; of the results the columns 2 j and 2 j + 1 of rows g and g + 8. Four runs of activations
// that have a scale each share the eight columns, high and low bytes side by side. A product's
// weights are of one of them (Q5_K, Q8_0), two (Q4_K) or all four (Q6_K); where they meet columns
// of another run, the activations are zero. So lane j is left with run j of four, multiplies by
// that run's scale, and in the end the four lanes of a row's group add up.
#if defined(__CUDACC__)
static __device__ __forceinline__ void r32_mma(int (&c)[4], uint a0, uint a1, uint a2, uint a3,
                                               uint b0, uint b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void r32_mma_signed(int (&c)[4], uint a0, uint a1, uint a2,
                                                      uint a3, uint b0, uint b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif  // tests/cpp/cuda/warp.h has them for a host

static __device__ __forceinline__ void r32_put(float2* pairs, uint row, uint i, float coefficient,
                                               float integer) {
    pairs[32 * i + row] = make_float2(coefficient, integer);
}

// The words of activations that lane (g, j) reads: word j of the first piece of run g / 2 of four,
// in plane g mod 2, and the same of the piece `apart` further.
struct R32Columns {
    const uint* first;
    const uint* second;
    __device__ __forceinline__ R32Columns(const R32Activations& x, uint run_pieces, uint apart,
                                          uint g, uint j) {
        const uint4* plane = (g & 1) == 0 ? x.hi : x.lo;
        const uint piece = run_pieces * (g / 2);
        const uint a = (g & 1) == 0 ? piece : r32_low_piece(piece);
        const uint b = (g & 1) == 0 ? piece + apart : r32_low_piece(piece + apart);
        first = reinterpret_cast<const uint*>(plane + a) + j;
        second = reinterpret_cast<const uint*>(plane + b) + j;
    }
};

// Exact integers of the rows g, g + 8, g + 16, g + 24 in lane (g, j); summed over j, lane (g, j)
// keeps row g + 8 j.
static __device__ __forceinline__ int r32_gather_row(const int (&v)[4], uint j) {
    const bool upper = (j & 2) != 0;
    const int r0 = (upper ? v[2] : v[0]) + __shfl_xor_sync(0xffffffffu, upper ? v[0] : v[2], 2);
    const int r1 = (upper ? v[3] : v[1]) + __shfl_xor_sync(0xffffffffu, upper ? v[1] : v[3], 2);
    const bool odd = (j & 1) != 0;
    return (odd ? r1 : r0) + __shfl_xor_sync(0xffffffffu, odd ? r0 : r1, 1);
}

// Word j of a piece of a row.
static __device__ __forceinline__ uint r32_word(const uint4* group, uint piece, uint row, uint j) {
    return reinterpret_cast<const uint*>(group + 32 * piece + row)[j];
}

// What lane (g, j) needs of the pieces first ... first + kCount - 1: word j of rows g + 8 q.
template <uint kCount>
struct R32Words {
    uint word[kCount][4];
    __device__ __forceinline__ R32Words(const uint4* group, uint first, uint g, uint j) {
#pragma unroll
        for (uint p = 0; p < kCount; ++p) {
#pragma unroll
            for (uint q = 0; q < 4; ++q) word[p][q] = r32_word(group, first + p, g + 8 * q, j);
        }
    }
};

// Q4_K: of 128 bytes of nibbles 32 c ... are of runs 2 c (low) and 2 c + 1 (high), of 32 elements.
//
// Lane (g, j) has sixteen bytes in a row of a half's 64, so that j / 2 is its c of two. A product
// takes 8 of them, and is of two runs then: low nibbles, or whole bytes, which are 16 times the
// high nibble and the low one once more. Columns of runs in high nibbles are left with whole bytes
// minus low ones, the others with low ones 16 times, to be alike.
struct R32Q4K {
    enum { kPieces = 9, kTail = 0, kPairs = 2 };
    template <class Release>
    static __device__ __forceinline__ void step(const uint4* w, const R32Activations& x,
                                                float2* pairs, uint lane, Release release) {
        const uint g = lane / 4;
        const uint j = lane % 4;
        const uint4 head = w[lane];
        const R32Unpacked six = r32_unpack(head.x, head.y, head.z);  // four times each
        const float s = x.s;
        int tm = 0;
#pragma unroll
        for (uint r = 0; r < 8; r += 2) {
            const int4 sums = reinterpret_cast<const int4*>(x.sums)[r / 2];
            const uint pair = six.word[2 + r / 4] >> (8 * (r % 4));
            tm += static_cast<int>(pair & 255u) * (sums.x + sums.y);
            tm += static_cast<int>(__byte_perm(pair, 0, 0x4441)) * (sums.z + sums.w);
        }
        // Column g's activations where they meet the lane's c.
        const uint piece = 2 * (g / 2) + (j & 1);
        const uint4* columns = (g & 1) == 0 ? x.hi + piece : x.lo + r32_low_piece(piece);
        const bool meets = g / 4 == j / 2;
        const bool odd = (g & 2) != 0;
        const int weight = (j & 1) == 0 ? 16 : -1;  // of low nibbles in the lane's columns
        int high[4] = {};
        int low[4] = {};
#pragma unroll
        for (uint half = 0; half < 2; ++half) {  // of the eight runs
            uint4 b;
            b.x = b.y = b.z = b.w = 0;
            if (meets) b = columns[8 * half];
            uint4 words[4];
#pragma unroll
            for (uint p = 0; p < 4; ++p) words[p] = w[32 * (1 + 4 * half + p) + lane];
            if (half == 1) release();
            int lows[2][4] = {};
            int wholes[2][4] = {};
#pragma unroll
            for (uint p = 0; p < 4; ++p) {  // pairs of words, and rows
                const uint b0 = p < 2 ? b.x : b.z;
                const uint b1 = p < 2 ? b.y : b.w;
                const uint4 a = words[p];
                r32_mma(wholes[p % 2], a.x, a.y, a.z, a.w, odd ? b0 : 0, odd ? b1 : 0);
                r32_mma(lows[p % 2], a.x & 0x0f0f0f0fu, a.y & 0x0f0f0f0fu, a.z & 0x0f0f0f0fu,
                        a.w & 0x0f0f0f0fu, b0, b1);
            }
#pragma unroll
            for (uint q = 0; q < 4; ++q) {
                const int scale = static_cast<int>(__byte_perm(six.word[half], 0, 0x4440 + q));
                const int of_low = scale * weight;
                const uint at = 2 * (q & 1);
                high[q] += scale * wholes[q / 2][at] + of_low * lows[q / 2][at];
                low[q] += scale * wholes[q / 2][at + 1] + of_low * lows[q / 2][at + 1];
            }
        }
        const uint row = g + 8 * j;
        const int th = r32_gather_row(high, j);
        const int tl = r32_gather_row(low, j);
        // 64 times the integer, whose f32 is 64 times as large, and four times M: both fit, since
        // 63 * 15 * 128 * 256 * 64 and 63 * 32767 * 256 * 4 are less than 2^31. The wide rule with
        // TH = M div 256 is one exact way to its f32.
        r32_put(pairs, row, 0, r32_half(head.w) * s, wide_to_float(th, tl) * 0.015625f);
        r32_put(pairs, row, 1, -(r32_half(head.w >> 16) * s),
                wide_to_float(tm >> 8, tm & 255) * 0.25f);
    }
};

// Q5_K: as ggml has it, 16 bytes of head (d, dmin, 12 bytes of scales), 32 of fifth bits, and
// Q4_K's nibbles.
struct R32Q5K {
    enum { kPieces = 11, kTail = 0, kPairs = 2 };
    template <class Release>
    static __device__ __forceinline__ void step(const uint4* w, const R32Activations& x,
                                                float2* pairs, uint lane, Release release) {
        const uint g = lane / 4;
        const uint j = lane % 4;
        const uint row = g + 8 * j;
        // Of rows g + 8 q, runs j and j + 4: scale, scale, minimum, minimum, a byte each.
        uint coefficients[4];
#pragma unroll
        for (uint q = 0; q < 4; ++q) {
            const uint4 head = w[g + 8 * q];
            const uint y = head.y >> (8 * j);
            const uint z = head.z >> (8 * j);
            const uint last = head.w >> (8 * j);
            const uint later = (last & 15u) | ((y >> 2) & 0x30u);
            const uint later_min = ((last >> 4) & 15u) | ((z >> 2) & 0x30u);
            coefficients[q] = (y & 63u) | (later << 8) | ((z & 63u) << 16) | (later_min << 24);
        }
        const uint d = r32_word(w, 0, row, 0);
        const R32Columns columns(x, 2, 1, g, j);
        const float s = x.s;
        const int2* all_sums = reinterpret_cast<const int2*>(x.sums);
        const int2 sums[2] = {all_sums[j], all_sums[4 + j]};
        int high[4] = {};
        int low[4] = {};
        int m[4];
#pragma unroll
        for (uint half = 0; half < 2; ++half) {  // of the eight runs
            const uint x0 = columns.first[32 * half];
            const uint x1 = columns.second[32 * half];
            const R32Words<2> fifths(w, 1, g, j);
            const R32Words<4> words(w, 3 + 4 * half, g, j);
            if (half == 1) release();
            int acc[2][4] = {};
#pragma unroll
            for (uint c = 0; c < 2; ++c) {
                const bool mine0 = g / 2 == 2 * c;
                const bool mine1 = g / 2 == 2 * c + 1;
                const uint b00 = mine0 ? x0 : 0;
                const uint b01 = mine0 ? x1 : 0;
                const uint b10 = mine1 ? x0 : 0;
                const uint b11 = mine1 ? x1 : 0;
#pragma unroll
                for (uint t = 0; t < 2; ++t) {
                    uint a[4];
                    uint b[4];
#pragma unroll
                    for (uint k = 0; k < 4; ++k) {
                        const uint q = 2 * t + (k & 1);
                        const uint word = words.word[2 * c + k / 2][q];
                        const uint fifth = fifths.word[k / 2][q];
                        const uint bit = 4 * half + 2 * c;
                        a[k] = (word & 0x0f0f0f0fu) | (((fifth >> bit) & 0x01010101u) << 4);
                        b[k] = ((word >> 4) & 0x0f0f0f0fu) |
                               (((fifth >> (bit + 1)) & 0x01010101u) << 4);
                    }
                    r32_mma(acc[t], a[0], a[1], a[2], a[3], b00, b01);
                    r32_mma(acc[t], b[0], b[1], b[2], b[3], b10, b11);
                }
            }
            const int sum = sums[half].x + sums[half].y;
#pragma unroll
            for (uint q = 0; q < 4; ++q) {
                const int scale = static_cast<int>((coefficients[q] >> (8 * half)) & 255u);
                const int min = static_cast<int>((coefficients[q] >> (16 + 8 * half)) & 255u);
                high[q] += scale * acc[q / 2][2 * (q & 1)];
                low[q] += scale * acc[q / 2][2 * (q & 1) + 1];
                m[q] = half == 0 ? min * sum : m[q] + min * sum;
            }
        }
        const int th = r32_gather_row(high, j);
        const int tl = r32_gather_row(low, j);
        const int tm = r32_gather_row(m, j);
        r32_put(pairs, row, 0, r32_half(d) * s, wide_to_float(th, tl));
        // |M| < 2^30: the wide rule with TH = M div 256 is one exact way to its f32.
        r32_put(pairs, row, 1, -(r32_half(d >> 16) * s), wide_to_float(tm >> 8, tm & 255));
    }
};

// Q6_K: sixteen runs of 16 elements. A product is of four runs, one in each lane of a row, so that
// a column has activations in one lane.
struct R32Q6K {
    enum { kPieces = 13, kTail = 64, kPairs = 1 };
    template <class Release>
    static __device__ __forceinline__ void step(const uint4* w, const R32Activations& x,
                                                float2* pairs, uint lane, Release release) {
        const uint g = lane / 4;
        const uint j = lane % 4;
        const uint row = g + 8 * j;
        const uint4 all = w[32 * 12 + lane];
        const uint scales[4] = {all.x, all.y, all.z, all.w};  // of rows g + 8 q
        const uint d = reinterpret_cast<const ushort*>(w + 32 * kPieces)[row];
        const float s = x.s;
        const bool mine = g / 2 == j;
        int high[4] = {};
        int low[4] = {};
#pragma unroll
        for (uint m = 0; m < 4; ++m) {  // runs 4 m ...
            const uint piece = 4 * m + j;
            uint4 b;
            b.x = b.y = b.z = b.w = 0;
            if (mine) b = (g & 1) == 0 ? x.hi[piece] : x.lo[r32_low_piece(piece)];
            uint words[12];
#pragma unroll
            for (uint p = 0; p < 3; ++p) {
                const uint4 four = w[32 * (3 * m + p) + lane];
                words[4 * p] = four.x;
                words[4 * p + 1] = four.y;
                words[4 * p + 2] = four.z;
                words[4 * p + 3] = four.w;
            }
            if (m == 3) release();
            int acc[2][4] = {};
#pragma unroll
            for (uint f = 0; f < 4; ++f) {
                const R32Unpacked a = r32_unpack(words[3 * f], words[3 * f + 1], words[3 * f + 2]);
                r32_mma_signed(acc[f % 2], a.word[0], a.word[1], a.word[2], a.word[3],
                               f < 2 ? b.x : b.z, f < 2 ? b.y : b.w);
            }
#pragma unroll
            for (uint q = 0; q < 4; ++q) {
                const int scale = static_cast<signed char>(scales[q] >> (8 * m));
                high[q] += scale * acc[q / 2][2 * (q & 1)];
                low[q] += scale * acc[q / 2][2 * (q & 1) + 1];
            }
        }
        // Four times the integer: at most 128 * 128 * 128 * 256.
        const int th = r32_gather_row(high, j);
        const int tl = r32_gather_row(low, j);
        r32_put(pairs, row, 0, r32_half(d) * s, wide_to_float(th, tl) * 0.25f);
    }
};

// Q8_0: eight blocks of 32, each with its own d and its own pair.
struct R32Q80 {
    enum { kPieces = 17, kTail = 0, kPairs = 8 };
    template <class Release>
    static __device__ __forceinline__ void step(const uint4* w, const R32Activations& x,
                                                float2* pairs, uint lane, Release release) {
        const uint g = lane / 4;
        const uint j = lane % 4;
        const R32Columns columns(x, 2, 1, g, j);
        const float s = x.s;
#pragma unroll
        for (uint half = 0; half < 2; ++half) {
            const uint x0 = columns.first[32 * half];
            const uint x1 = columns.second[32 * half];
            const R32Words<8> words(w, 1 + 8 * half, g, j);
            uint d[4];
#pragma unroll
            for (uint q = 0; q < 4; ++q) {
                d[q] = reinterpret_cast<const ushort*>(w + g + 8 * q)[4 * half + j];
            }
            if (half == 1) release();
            int acc[2][4] = {};
#pragma unroll
            for (uint c = 0; c < 4; ++c) {
                const uint b0 = g / 2 == c ? x0 : 0;
                const uint b1 = g / 2 == c ? x1 : 0;
#pragma unroll
                for (uint t = 0; t < 2; ++t) {
                    r32_mma_signed(acc[t], words.word[2 * c][2 * t], words.word[2 * c][2 * t + 1],
                                   words.word[2 * c + 1][2 * t], words.word[2 * c + 1][2 * t + 1],
                                   b0, b1);
                }
            }
#pragma unroll
            for (uint q = 0; q < 4; ++q) {
                r32_put(pairs, g + 8 * q, 4 * half + j, r32_half(d[q]) * s,
                        wide_to_float(acc[q / 2][2 * (q & 1)], acc[q / 2][2 * (q & 1) + 1]));
            }
        }
    }
};
