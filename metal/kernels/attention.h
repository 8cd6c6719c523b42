// Pieces of softmax attention over one chunk of 64 keys (docs/numerics.md §4).
//
// Four lanes take one key: lane `quarter` holds partials 8 * quarter ... + 7 of the score, whose
// dims 32 i + 8 quarter ... + 7 are 16 or 32 bytes in a row. head_dim is a multiple of 8.
#pragma once

#include "kv_rows.h"

// The visible keys of one chunk, and where their rows are.
struct Chunk {
    uint base;   // absolute position of slot 0
    uint first;  // slots [first, end) are visible
    uint end;
    uint skipped;  // visible keys before this chunk, less `first`, modulo 2^32
};

static inline Chunk chunk_of(constant KvView* view, uint index) {
    const uint begin = view->first_position;
    const uint past = begin + view->count;
    Chunk out;
    out.base = (begin / MUSER_CHUNK + index) * MUSER_CHUNK;
    out.first = begin > out.base ? begin - out.base : 0;
    out.end = min(past - out.base, static_cast<uint>(MUSER_CHUNK));
    out.skipped = out.base - begin;
    return out;
}

// The element where the row of a visible slot begins, for one KV head.
static inline size_t slot_element(constant KvView* view, Chunk chunk, uint slot, uint capacity,
                                  uint width, uint kv_head, uint head_dim) {
    const uint row = kv_row(view->first_row, chunk.skipped + slot, capacity);
    return static_cast<size_t>(row) * width + static_cast<size_t>(kv_head) * head_dim;
}

// tree over the 32 partials, eight in each of four lanes.
static inline float score_tree(Eight part) {
    for (uint u = 0; u < 8; ++u) part.v[u] += simd_shuffle_xor(part.v[u], static_cast<ushort>(2));
    for (uint u = 0; u < 8; ++u) part.v[u] += simd_shuffle_xor(part.v[u], static_cast<ushort>(1));
    for (uint u = 0; u < 4; ++u) part.v[u] += part.v[u + 4];
    for (uint u = 0; u < 2; ++u) part.v[u] += part.v[u + 2];
    return part.v[0] + part.v[1];
}

static inline Eight no_partials() {
    Eight out;
    for (uint u = 0; u < 8; ++u) out.v[u] = 0.0f;
    return out;
}

static inline Eight add_products(Eight part, Eight q, Eight k) {
    for (uint u = 0; u < 8; ++u) part.v[u] = MUSER_FMA(q.v[u], k.v[u], part.v[u]);
    return part;
}

// Scores of 64 slots become exp(score - m) in place, and m and l go to the partials. One SIMD
// group; absent slots count +0.
static inline void softmax_chunk(threadgroup float* scores, Chunk chunk, device float* partial,
                                 uint lane) {
    const bool here0 = lane >= chunk.first && lane < chunk.end;
    const bool here1 = lane + 32 >= chunk.first && lane + 32 < chunk.end;
    const float lowest = MUSER_BITS_FLOAT(0xff800000u);
    const float s0 = here0 ? scores[lane] : lowest;
    const float s1 = here1 ? scores[lane + 32] : lowest;
    // A NaN score never becomes the maximum.
    const float m0 = simd_first_largest(s0 > lowest ? s0 : lowest, lane);
    const float m1 = simd_first_largest(s1 > lowest ? s1 : lowest, lane);
    const float m = m1 > m0 ? m1 : m0;
    const float p0 = here0 ? muser_exp(s0 - m) : 0.0f;
    const float p1 = here1 ? muser_exp(s1 - m) : 0.0f;
    const float l = simd_tree_sum(p0 + p1);
    scores[lane] = p0;
    scores[lane + 32] = p1;
    if (lane == 0) {
        partial[0] = m;
        partial[1] = l;
    }
}
