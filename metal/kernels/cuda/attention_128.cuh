// Decode attention where head_dim is 128 and planes are f16 (docs/numerics.md §4): what both forms
// of it do (attention.cu, store_attend.cu).
#pragma once

#include "../attention.h"
#include "../head_norm.h"
#include "launch_args.h"
#if defined(__CUDACC__)
#include "grid.cuh"
#endif  // tests/cpp/emulator/cuda_attention.h has what of it is needed on a host

#define MUSER_D MUSER_ATTEND_HEAD_DIM
#define MUSER_QUERIES MUSER_ATTEND_QUERIES  // one for each of the warps that work on them
#define MUSER_MOST_CHUNKS MUSER_ATTEND_MOST_CHUNKS
#define MUSER_SCORE_ROW \
    (MUSER_CHUNK + 4)  // eight heads' scores of four keys lie in different banks
// Partial rows that a thread of the combination has on their way: a window of 2,048 keys has 33
// chunks.
#define MUSER_ROWS_PIECE 11
#define MUSER_ROWS_AHEAD (3 * MUSER_ROWS_PIECE)

// A block of 256 threads has one chunk and the query heads of one KV head, or eight of them.
struct AttendShared {
    uint4 keys[MUSER_CHUNK * MUSER_D / 8];
    uint4 values[MUSER_CHUNK * MUSER_D / 8];
    float queries[MUSER_QUERIES * MUSER_D];
    __align__(16) float scores[MUSER_QUERIES * MUSER_SCORE_ROW];
};

// Of a block: how many query heads, the first of them, and which KV head they have.
struct QueryGroup {
    uint count;
    uint first_head;
    uint kv_head;
};
static __device__ __forceinline__ QueryGroup query_group(uint heads, uint kv_heads, uint group) {
    const uint of_kv_head = heads / kv_heads;
    const uint count = min(of_kv_head, static_cast<uint>(MUSER_QUERIES));
    return {count, group * count, group * count / of_kv_head};
}

// The rows of the visible slots on their way to shared memory, but for slot `except`. Four threads
// have one row.
static __device__ __forceinline__ void ask_for_rows(AttendShared& shared, const KvView* view,
                                                    const Chunk& chunk, uint except, uint capacity,
                                                    uint kv_heads, uint kv_head, const ushort* keys,
                                                    const ushort* values, uint tid) {
    const uint slot = tid / 4;
    if (slot < chunk.first || slot >= chunk.end || slot == except) return;
    const size_t row =
        slot_element(view, chunk, slot, capacity, kv_heads * MUSER_D, kv_head, MUSER_D);
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        const uint piece = 4 * i + tid % 4;
        copy_16_async(&shared.keys[slot * (MUSER_D / 8) + piece], keys + row + 8 * piece);
        copy_16_async(&shared.values[slot * (MUSER_D / 8) + piece], values + row + 8 * piece);
    }
}

// A step of the tree over 32 partials that lanes have, for twice as many trees as kHalf: a lane
// gives away half of them, and adds what it is given to the other half. After the last step lane i
// has the sum of tree i.
template <uint kHalf>
static __device__ __forceinline__ void hand_on(float (&parts)[32], uint lane) {
    const bool upper = (lane & kHalf) != 0;
#pragma unroll
    for (uint j = 0; j < kHalf; ++j) {
        const float kept = upper ? parts[kHalf + j] : parts[j];
        const float given = upper ? parts[j] : parts[kHalf + j];
        parts[j] = kept + simd_shuffle_xor(given, static_cast<ushort>(kHalf));
    }
}

// The scores of a warp's eight keys with all queries. A lane has one of the 32 partials of each
// score, and in the end the score of one key and head.
static __device__ __forceinline__ void score_keys(AttendShared& shared, float scale, uint tid) {
    const uint lane = tid & 31u;
    const uint first_key = tid / 32 * 8;
    float query[MUSER_QUERIES][4];
#pragma unroll
    for (uint h = 0; h < MUSER_QUERIES; ++h) {
#pragma unroll
        for (uint i = 0; i < 4; ++i) query[h][i] = shared.queries[h * MUSER_D + lane + 32 * i];
    }
    const ushort* keys = reinterpret_cast<const ushort*>(shared.keys) + lane;
#pragma unroll
    for (uint first = first_key; first < first_key + 8; first += 4) {
        float parts[32];
#pragma unroll
        for (uint k = 0; k < 4; ++k) {
            float key[4];
#pragma unroll
            for (uint i = 0; i < 4; ++i) {
                key[i] = MUSER_HALF_BITS_FLOAT(keys[(first + k) * MUSER_D + 32 * i]);
            }
#pragma unroll
            for (uint h = 0; h < MUSER_QUERIES; ++h) {
                float part = 0.0f;
#pragma unroll
                for (uint i = 0; i < 4; ++i) part = MUSER_FMA(query[h][i], key[i], part);
                parts[MUSER_QUERIES * k + h] = part;
            }
        }
        hand_on<16>(parts, lane);
        hand_on<8>(parts, lane);
        hand_on<4>(parts, lane);
        hand_on<2>(parts, lane);
        hand_on<1>(parts, lane);
        shared.scores[MUSER_SCORE_ROW * (lane % MUSER_QUERIES) + first + lane / MUSER_QUERIES] =
            parts[0] * scale;
    }
}

// The weighted sum of the values: two dims of two heads per thread. Absent keys have no factor to
// add with: at either end of a chunk they are passed over.
static __device__ __forceinline__ void weigh_values(const AttendShared& shared, const Chunk& chunk,
                                                    uint count, float* partial, uint tid) {
    const uint head = tid / 64 * 2;
    const uint pair = tid % 64;
    const uint* rows = reinterpret_cast<const uint*>(shared.values) + pair;
    const float* factors = shared.scores + MUSER_SCORE_ROW * head;
    float2 sums[2] = {};
    const auto add = [&](uint k, float first, float second) {
        const uint both = rows[k * (MUSER_D / 2)];
        const float x = MUSER_HALF_BITS_FLOAT(both & 0xffffu);
        const float y = MUSER_HALF_BITS_FLOAT(both >> 16);
        sums[0].x = MUSER_FMA(first, x, sums[0].x);
        sums[0].y = MUSER_FMA(first, y, sums[0].y);
        sums[1].x = MUSER_FMA(second, x, sums[1].x);
        sums[1].y = MUSER_FMA(second, y, sums[1].y);
    };
    const auto add_one = [&](uint k) { add(k, factors[k], factors[MUSER_SCORE_ROW + k]); };
    uint k = chunk.first;
    for (; k < chunk.end && k % 4 != 0; ++k) add_one(k);
#pragma unroll 4
    for (; k + 4 <= chunk.end; k += 4) {
        const float4 a = *reinterpret_cast<const float4*>(factors + k);
        const float4 b = *reinterpret_cast<const float4*>(factors + MUSER_SCORE_ROW + k);
        add(k, a.x, b.x);
        add(k + 1, a.y, b.y);
        add(k + 2, a.z, b.z);
        add(k + 3, a.w, b.w);
    }
    for (; k < chunk.end; ++k) add_one(k);
#pragma unroll
    for (uint i = 0; i < 2; ++i) {
        if (head + i >= count) return;
        reinterpret_cast<float2*>(partial + (head + i) * (2 + MUSER_D) + 2)[pair] = sums[i];
    }
}

// With queries, keys and values in shared memory: the partials of the block's heads. Of a larger
// block, threads from 256 on only keep the others company.
static __device__ __forceinline__ void attend_chunk(AttendShared& shared, const Chunk& chunk,
                                                    uint count, float scale, float* partial,
                                                    uint tid) {
    const uint simd = tid >> 5;
    if (simd < MUSER_CHUNK / 8) score_keys(shared, scale, tid);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd < count) {
        softmax_chunk(shared.scores + MUSER_SCORE_ROW * simd, chunk, partial + simd * (2 + MUSER_D),
                      tid & 31u);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd < MUSER_CHUNK / 8) weigh_values(shared, chunk, count, partial, tid);
}

// Combination and gate of two heads, which are one block of the form, by 256 threads: a dim each,
// with its opened gate.
struct ChunkFactor {
    float factor;
    float sum;
};
struct CombineShared {
    ChunkFactor factors[2][MUSER_MOST_CHUNKS + MUSER_ROWS_PIECE];
    float largest[8];
    __align__(16) float gated[MUSER_BLOCK];
};
static __device__ __forceinline__ void combine_pair(CombineShared& shared, uint pair, uint heads,
                                                    uint chunks, const float* partials,
                                                    float opened, float* attention, uchar* form,
                                                    uint tid) {
    const uint lane = tid & 31u;
    const uint half = tid / MUSER_D;
    const uint local = tid % MUSER_D;
    const uint element = MUSER_BLOCK * pair + tid;
    const uint stride = heads * (2 + MUSER_D);
    const float* first = partials + (2 * pair + half) * (2 + MUSER_D);
    // The factors are made while the rows are on their way, as many of them as there is room for.
    ChunkFactor* factors = shared.factors[half];
    float m = MUSER_BITS_FLOAT(0xff800000u);
    for (uint c = local; c < chunks; c += MUSER_D) {
        const float2 head = __ldcg(reinterpret_cast<const float2*>(first + c * stride));
        factors[c] = {head.x, head.y};
        m = head.x > m ? head.x : m;
    }
    float rows[MUSER_ROWS_AHEAD];
    const auto ask_for_rows = [&](uint begin) {
#pragma unroll
        for (uint i = 0; i < MUSER_ROWS_AHEAD; ++i) {
            const uint c = begin + i;
            if (c < chunks) rows[i] = __ldcg(first + c * stride + 2 + local);
        }
    };
    ask_for_rows(0);
    m = simd_largest(m);
    if (lane == 0) shared.largest[tid >> 5] = m;
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        const float other = shared.largest[4 * half + i];
        m = other > m ? other : m;
    }
    for (uint c = local; c < chunks; c += MUSER_D) {
        factors[c].factor = muser_exp(factors[c].factor - m);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0.0f;
    float out = 0.0f;
    for (uint begin = 0; begin < chunks; begin += MUSER_ROWS_AHEAD) {
        if (begin > 0) ask_for_rows(begin);
#pragma unroll
        for (uint piece = 0; piece < MUSER_ROWS_AHEAD; piece += MUSER_ROWS_PIECE) {
            const uint left = begin + piece < chunks ? chunks - begin - piece : 0;
            if (left == 0) break;
            // Read at once, lest each waits for the one before; what is past the last chunk is not
            // kept.
            ChunkFactor of[MUSER_ROWS_PIECE];
#pragma unroll
            for (uint i = 0; i < MUSER_ROWS_PIECE; ++i) of[i] = factors[begin + piece + i];
#pragma unroll
            for (uint i = 0; i < MUSER_ROWS_PIECE; ++i) {
                const float next_sum = MUSER_FMA(of[i].factor, of[i].sum, sum);
                const float next_out = MUSER_FMA(of[i].factor, rows[piece + i], out);
                sum = i < left ? next_sum : sum;
                out = i < left ? next_out : out;
            }
        }
    }
    const float value = (out / sum) * opened;
    attention[element] = value;
    if (form == nullptr) return;
    shared.gated[tid] = value;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid >= 32) return;
    const float4* mine = reinterpret_cast<const float4*>(shared.gated) + 2 * lane;
    write_block(form, heads * MUSER_D, pair, as_eight(mine[0], mine[1]), lane);
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
