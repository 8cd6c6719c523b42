// Softmax attention of one query head over one KV head (docs/numerics.md §4).
#pragma once

#include <cstddef>
#include <cstdint>

namespace muser::contract {

enum class KvType { F16, F32 };

// Keys per chunk; chunk = position div 64, slot = position mod 64, whatever the ring's rotation.
inline constexpr int64_t kChunk = 64;

// One KV head's rows in a plane, a ring or a staged shadow, by absolute position:
// physical row = (origin_physical + position - origin_logical) mod capacity.
// A plane: origins 0. A ring of W rows filled from position 0: origins 0, capacity W. A shadow:
// origin_logical is the position of its first row.
struct KvRows {
    const void* data = nullptr;  // element 0 of physical row 0 of this head
    KvType type = KvType::F16;
    size_t row_stride = 0;  // elements from one row to the next
    int64_t capacity = 0;   // rows
    int64_t origin_logical = 0;
    int64_t origin_physical = 0;

    int64_t physical_row(int64_t position) const;
    float at(int64_t position, size_t dim) const;  // exact f32 of the stored value
};

// f32(1 / sqrt(head_dim)), computed in f64 and rounded once.
float attention_scale(size_t head_dim);

// Score of one key: 32 partials over dims, tree, times scale.
float attention_score(const float* q, const KvRows& keys, int64_t position, size_t head_dim,
                      float scale);

// What a chunk leaves for the combination: its maximum m, its sum l, and o[head_dim].
struct ChunkState {
    float m;
    float l;
};

// Chunk `chunk` over the visible, written positions [begin, end) that lie in it (at least one).
ChunkState attention_chunk(const float* q, const KvRows& keys, const KvRows& values, int64_t chunk,
                           int64_t begin, int64_t end, size_t head_dim, float scale, float* o);

// Combines `count` chunks, in increasing order of position. `o` holds count rows of head_dim.
void attention_combine(const ChunkState* states, const float* o, size_t count, size_t head_dim,
                       float* out);

// The whole head: visible, written positions [begin, end), at least one; out[head_dim].
void attention(const float* q, const KvRows& keys, const KvRows& values, int64_t begin, int64_t end,
               size_t head_dim, float* out);

}  // namespace muser::contract
