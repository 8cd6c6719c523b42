// Decode attention where head_dim is 128 and planes are f16 (docs/numerics.md §4): what both forms
// of it do (attention.cu, store_attend.cu).
#pragma once

#include "../attention.h"
#include "../head_norm.h"
#include "grid.cuh"

#define MUSER_D 128      // head_dim
#define MUSER_QUERIES 4  // query heads of a block
#define MUSER_MOST_CHUNKS 512

static __device__ __forceinline__ Eight halves_to_floats(uint4 packed) {
    const uint words[4] = {packed.x, packed.y, packed.z, packed.w};
    Eight out;
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        out.v[2 * i] = MUSER_HALF_BITS_FLOAT(words[i] & 0xffffu);
        out.v[2 * i + 1] = MUSER_HALF_BITS_FLOAT(words[i] >> 16);
    }
    return out;
}

// A block of 256 threads has one chunk and four query heads of one KV head. A warp holds eight keys
// in registers and meets four query heads with them; the values are on their way to shared memory.
struct AttendShared {
    uint4 value_rows[MUSER_CHUNK * MUSER_D / 8];
    float4 queries[MUSER_QUERIES * MUSER_D / 4];
    __align__(16) float scores[MUSER_QUERIES * MUSER_CHUNK];
};

// Which key and which quarter of each 32 of its dims a thread has.
struct KeyPlace {
    uint slot;
    uint quarter;
};
static __device__ __forceinline__ KeyPlace key_place(uint tid) {
    return {8 * (tid >> 5) + (tid & 31u) / 4, tid % 4};
}

// A thread's part of one row of K to its registers, of V to shared memory.
static __device__ __forceinline__ void ask_for_row(AttendShared& shared, KeyPlace place, size_t row,
                                                   const ushort* keys, const ushort* values,
                                                   uint4 (&key)[4]) {
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        const size_t at = row + 32 * i + 8 * place.quarter;
        key[i] = *reinterpret_cast<const uint4*>(keys + at);
        copy_16_async(&shared.value_rows[place.slot * (MUSER_D / 8) + 4 * i + place.quarter],
                      values + at);
    }
}

// score_tree for the query head of a lane's own number: at each step a lane hands on what others
// will have, and adds what it is handed.
static __device__ __forceinline__ float own_score(const Eight (&parts)[MUSER_QUERIES],
                                                  uint quarter) {
    const bool upper = (quarter & 2) != 0;
    const bool odd = (quarter & 1) != 0;
    Eight own;
#pragma unroll
    for (uint u = 0; u < 8; ++u) {
        float two[2];
#pragma unroll
        for (uint h = 0; h < 2; ++h) {
            const float kept = upper ? parts[2 + h].v[u] : parts[h].v[u];
            const float given = upper ? parts[h].v[u] : parts[2 + h].v[u];
            two[h] = kept + simd_shuffle_xor(given, static_cast<ushort>(2));
        }
        own.v[u] = (odd ? two[1] : two[0]) +
                   simd_shuffle_xor(odd ? two[0] : two[1], static_cast<ushort>(1));
    }
    for (uint u = 0; u < 4; ++u) own.v[u] += own.v[u + 4];
    for (uint u = 0; u < 2; ++u) own.v[u] += own.v[u + 2];
    return own.v[0] + own.v[1];
}

// With all queries in shared memory: scores, softmax, and the weighted sum of the values, for the
// partials of the block's four heads.
static __device__ __forceinline__ void attend_chunk(AttendShared& shared, const uint4 (&key)[4],
                                                    const Chunk& chunk, float scale,
                                                    float* partial) {
    const uint tid = threadIdx.x;
    const uint simd = tid >> 5;
    const KeyPlace place = key_place(tid);
    Eight parts[MUSER_QUERIES];
#pragma unroll
    for (uint h = 0; h < MUSER_QUERIES; ++h) {
        parts[h] = no_partials();
#pragma unroll
        for (uint i = 0; i < 4; ++i) {
            const float4* query = shared.queries + h * (MUSER_D / 4) + 8 * i + 2 * place.quarter;
            const float4 a = query[0];
            const float4 b = query[1];
            Eight x;
            x.v[0] = a.x;
            x.v[1] = a.y;
            x.v[2] = a.z;
            x.v[3] = a.w;
            x.v[4] = b.x;
            x.v[5] = b.y;
            x.v[6] = b.z;
            x.v[7] = b.w;
            parts[h] = add_products(parts[h], x, halves_to_floats(key[i]));
        }
    }
    shared.scores[MUSER_CHUNK * place.quarter + place.slot] =
        own_score(parts, place.quarter) * scale;
    wait_for_copies();
    __syncthreads();

    if (simd < MUSER_QUERIES) {
        softmax_chunk(shared.scores + MUSER_CHUNK * simd, chunk, partial + simd * (2 + MUSER_D),
                      tid & 31u);
    }
    __syncthreads();

    // Two dims of one head per thread. Absent keys have no factor to add with: at either end of a
    // chunk they are passed over.
    const uint h = tid / 64;
    const uint pair = tid % 64;
    const uint* rows = reinterpret_cast<const uint*>(shared.value_rows) + pair;
    const float* factors = shared.scores + MUSER_CHUNK * h;
    float first = 0.0f;
    float second = 0.0f;
    const auto add = [&](uint k, float factor) {
        const uint v = rows[k * (MUSER_D / 2)];
        first = MUSER_FMA(factor, MUSER_HALF_BITS_FLOAT(v & 0xffffu), first);
        second = MUSER_FMA(factor, MUSER_HALF_BITS_FLOAT(v >> 16), second);
    };
    uint k = chunk.first;
    for (; k < chunk.end && k % 4 != 0; ++k) add(k, factors[k]);
#pragma unroll 4
    for (; k + 4 <= chunk.end; k += 4) {
        const float4 four = *reinterpret_cast<const float4*>(factors + k);
        add(k, four.x);
        add(k + 1, four.y);
        add(k + 2, four.z);
        add(k + 3, four.w);
    }
    for (; k < chunk.end; ++k) add(k, factors[k]);
    float* out = partial + h * (2 + MUSER_D) + 2;
    out[2 * pair] = first;
    out[2 * pair + 1] = second;
}

// The RMS norm and rotation of one head by a warp: elements lane + 32 i in `x`.
struct HeadRotation {
    float c[4];
    float s[4];
};
static __device__ __forceinline__ HeadRotation head_rotation(const StepValues* step, uint lane) {
    HeadRotation out;
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        out.c[i] = step->rope_cos[(lane + 32 * i) / 2];
        out.s[i] = step->rope_sin[(lane + 32 * i) / 2];
    }
    return out;
}
static __device__ __forceinline__ void norm_and_rotate(float (&x)[4], const float (&weight)[4],
                                                       float eps, bool rotate,
                                                       const HeadRotation& rotation, uint lane) {
    float sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < 4; ++i) sum = MUSER_FMA(x[i], x[i], sum);
    const float scale = norm_scale(simd_tree_sum(sum), MUSER_D, eps);
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        const float mine = (x[i] * scale) * weight[i];
        const float other = simd_shuffle_xor(mine, static_cast<ushort>(1));
        x[i] = mine;
        if (!rotate) continue;
        x[i] = (lane & 1) == 0 ? MUSER_FMA(mine, rotation.c[i], -(other * rotation.s[i]))
                               : MUSER_FMA(other, rotation.s[i], mine * rotation.c[i]);
    }
}
