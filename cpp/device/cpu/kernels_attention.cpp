// Softmax attention in chunks of 64 keys by absolute position (docs/numerics.md §4).
//
// A unit is one chunk of one query head, or (gqa) of all query heads that share a KV head. Its rows
// are first brought into scratch as f32 in order of position, which settles ring rotation and plane
// type; the arithmetic then runs on a dense [keys][head_dim] tile that fits the first-level cache.
#include "device/cpu/kernel_groups.h"
#include "device/cpu/lanes_math.h"

namespace muser::device::cpu::MUSER_ISA {
namespace {

// Query heads that share one pass over a tile; their scores wait in scratch.
constexpr uint32_t kGroup = 16;
// Accumulators that a pass over the values keeps in registers.
constexpr uint32_t kAccumulators = 8;

struct alignas(64) Scratch {
    float tile[MUSER_CHUNK * MUSER_MAX_HEAD_DIM];
    float p[kGroup][MUSER_CHUNK];
};

// The visible keys of one chunk: positions first ... first + count - 1.
struct Chunk {
    uint32_t first;
    uint32_t count;
    uint32_t slot;  // of the first one
    uint32_t row;   // its physical row
};

MUSER_INLINE Chunk chunk_of(const KvView& view, uint32_t index, uint32_t capacity) {
    const uint32_t absolute = view.first_position / MUSER_CHUNK + index;
    const uint32_t start = absolute * MUSER_CHUNK;
    const uint32_t first = start > view.first_position ? start : view.first_position;
    const uint32_t visible_end = view.first_position + view.count;
    const uint32_t end = start + MUSER_CHUNK < visible_end ? start + MUSER_CHUNK : visible_end;
    Chunk chunk;
    chunk.first = first;
    chunk.count = end - first;
    chunk.slot = first - start;
    const uint64_t row = uint64_t{view.first_row} + (first - view.first_position);
    chunk.row = static_cast<uint32_t>(row % capacity);
    return chunk;
}

template <class P>
MUSER_INLINE void load_tile(const typename P::Element* plane, const Chunk& chunk,
                            const AttendArgs& a, uint32_t kv_head, float* tile) {
    const size_t stride = size_t{a.kv_heads} * a.head_dim;
    uint32_t row = chunk.row;
    for (uint32_t key = 0; key < chunk.count; ++key) {
        const typename P::Element* from = plane + row * stride + size_t{kv_head} * a.head_dim;
        uint32_t i = 0;
        MUSER_VECTORS(i, a.head_dim) store(tile + i, P::load(from + i));
        for (; i < a.head_dim; ++i) tile[i] = P::get(from[i]);
        tile += a.head_dim;
        if (++row == a.capacity) row = 0;
    }
}

// score[k] = tree of the 32 partials of q * tile[k], times scale.
MUSER_INLINE void scores(const float* q, const float* tile, uint32_t count, uint32_t head_dim,
                         float scale, float* score) {
    uint32_t key = 0;
    if (head_dim % kPartials == 0) {
        for (; key + kLanes <= count; key += kLanes) {
            Floats upper[kLanes];  // each key's partials, folded to one vector
            for (unsigned k = 0; k < kLanes; ++k) {
                const float* row = tile + size_t{key + k} * head_dim;
                Floats acc[kPartialVectors] = {};
                for (uint32_t d = 0; d < head_dim; d += kPartials) {
                    for (unsigned j = 0; j < kPartialVectors; ++j) {
                        acc[j] = fma(load(q + d + j * kLanes), load(row + d + j * kLanes), acc[j]);
                    }
                }
                upper[k] = fold(acc, kPartialVectors);
            }
            store(score + key, tree_lanes(upper) * splat(scale));
        }
    }
    for (; key < count; ++key) {
        score[key] = dot_partials(q, tile + size_t{key} * head_dim, head_dim) * scale;
    }
}

// Folds s > m ? s : m from -inf over the keys in order. The order only shows in the sign of a zero.
MUSER_INLINE float maximum(const float* score, uint32_t count) {
    float m = -kInfinity;
    uint32_t key = 0;
    if (count >= kLanes) {
        Floats lanes = splat(-kInfinity);
        MUSER_VECTORS(key, count) {
            const Floats s = load(score + key);
            lanes = s > lanes ? s : lanes;
        }
        for (unsigned i = 0; i < kLanes; ++i) m = lanes[i] > m ? lanes[i] : m;
    }
    for (; key < count; ++key) m = score[key] > m ? score[key] : m;
    if (m == 0.0f) {
        m = -kInfinity;
        for (key = 0; key < count; ++key) m = score[key] > m ? score[key] : m;
    }
    return m;
}

// Turns the scores of the chunk's keys (at their slots) into p, absent slots +0; gives m and l.
MUSER_INLINE void softmax(float* p, const Chunk& chunk, float* m, float* l) {
    *m = maximum(p + chunk.slot, chunk.count);
    Floats acc[MUSER_CHUNK / kLanes];
    for (unsigned j = 0; j < MUSER_CHUNK / kLanes; ++j) {
        store(p + j * kLanes, exp(load(p + j * kLanes) - splat(*m)));
    }
    for (uint32_t slot = 0; slot < chunk.slot; ++slot) p[slot] = 0.0f;
    for (uint32_t slot = chunk.slot + chunk.count; slot < MUSER_CHUNK; ++slot) p[slot] = 0.0f;
    for (unsigned j = 0; j < MUSER_CHUNK / kLanes; ++j) acc[j] = load(p + j * kLanes);
    *l = tree(fold(acc, MUSER_CHUNK / kLanes));
}

// o[d] = fma chain of p * tile[key][d] over the keys in order.
template <unsigned kVectors>
MUSER_INLINE void weighted(const float* p, const float* tile, uint32_t count, uint32_t head_dim,
                           float* o) {
    Floats acc[kVectors] = {};
    for (uint32_t key = 0; key < count; ++key) {
        const Floats weight = splat(p[key]);
        const float* row = tile + size_t{key} * head_dim;
        for (unsigned j = 0; j < kVectors; ++j) {
            acc[j] = fma(weight, load(row + j * kLanes), acc[j]);
        }
    }
    for (unsigned j = 0; j < kVectors; ++j) store(o + j * kLanes, acc[j]);
}

MUSER_INLINE void weighted_sum(const float* p, const float* tile, uint32_t count, uint32_t head_dim,
                               float* o) {
    uint32_t d = 0;
    for (; d + kAccumulators * kLanes <= head_dim; d += kAccumulators * kLanes) {
        weighted<kAccumulators>(p, tile + d, count, head_dim, o + d);
    }
    MUSER_VECTORS(d, head_dim) weighted<1>(p, tile + d, count, head_dim, o + d);
    for (; d < head_dim; ++d) {
        float acc = 0.0f;
        for (uint32_t key = 0; key < count; ++key) {
            acc = fma(p[key], tile[size_t{key} * head_dim + d], acc);
        }
        o[d] = acc;
    }
}

// Where a head's partials of a chunk lie: max, sum, o[head_dim].
MUSER_INLINE float* partials_of(const Call& call, const AttendArgs& a, uint64_t chunk,
                                uint32_t head) {
    return buffer<float>(call, 5) + (chunk * a.heads + head) * (2 + size_t{a.head_dim});
}

// Query heads [first, first + count) of one KV head over one chunk.
template <class P>
MUSER_INLINE void attend(const Call& call, const AttendArgs& a, const KvView& view, uint32_t index,
                         uint32_t kv_head, uint32_t first, uint32_t count, Scratch& scratch) {
    using Element = typename P::Element;
    const Chunk chunk = chunk_of(view, index, a.capacity);
    const float* q = buffer<const float>(call, 2);
    // The compiler unrolls and drops bounds for the head size that the model has.
    const auto run = [&](uint32_t head_dim) __attribute__((always_inline)) {
        load_tile<P>(buffer<const Element>(call, 3), chunk, a, kv_head, scratch.tile);
        for (uint32_t h = 0; h < count; ++h) {
            float* p = scratch.p[h];
            // Slots without a key: any value that exp takes; softmax() zeroes them after.
            for (unsigned j = 0; j < MUSER_CHUNK; j += kLanes) store(p + j, Floats{});
            scores(q + size_t{first + h} * head_dim, scratch.tile, chunk.count, head_dim, a.scale,
                   p + chunk.slot);
            float* partials = partials_of(call, a, index, first + h);
            softmax(p, chunk, partials, partials + 1);
        }
        load_tile<P>(buffer<const Element>(call, 4), chunk, a, kv_head, scratch.tile);
        for (uint32_t h = 0; h < count; ++h) {
            weighted_sum(scratch.p[h] + chunk.slot, scratch.tile, chunk.count, head_dim,
                         partials_of(call, a, index, first + h) + 2);
        }
    };
    if (a.head_dim == 128) {
        run(128);
    } else {
        run(a.head_dim);
    }
}

MUSER_INLINE const KvView& view_of(const Call& call, const AttendArgs& a) {
    return view(*buffer<const StepValues>(call, 1), a.view);
}

Work attend_work(const Call& call) {
    const AttendArgs a = arguments<AttendArgs>(call);
    return {uint64_t{view_of(call, a).chunks} * a.heads, 16 * a.head_dim};
}

// Units run over the heads of a chunk first: neighbours read the same rows.
template <class P>
void attend_chunks(const Call& call, uint64_t begin, uint64_t end) {
    const AttendArgs a = arguments<AttendArgs>(call);
    const KvView& rows = view_of(call, a);
    Scratch scratch;
    for (uint64_t unit = begin; unit < end; ++unit) {
        const uint32_t head = static_cast<uint32_t>(unit % a.heads);
        attend<P>(call, a, rows, static_cast<uint32_t>(unit / a.heads),
                  head / (a.heads / a.kv_heads), head, 1, scratch);
    }
}

Work attend_gqa_work(const Call& call) {
    const AttendArgs a = arguments<AttendArgs>(call);
    const uint64_t group = a.heads / a.kv_heads;
    return {uint64_t{view_of(call, a).chunks} * a.kv_heads, (8 + 6 * group) * a.head_dim};
}

template <class P>
void attend_chunks_gqa(const Call& call, uint64_t begin, uint64_t end) {
    const AttendArgs a = arguments<AttendArgs>(call);
    const KvView& rows = view_of(call, a);
    const uint32_t group = a.heads / a.kv_heads;
    Scratch scratch;
    for (uint64_t unit = begin; unit < end; ++unit) {
        const uint32_t kv_head = static_cast<uint32_t>(unit % a.kv_heads);
        const uint32_t index = static_cast<uint32_t>(unit / a.kv_heads);
        for (uint32_t h = 0; h < group; h += kGroup) {
            attend<P>(call, a, rows, index, kv_head, kv_head * group + h,
                      group - h < kGroup ? group - h : kGroup, scratch);
        }
    }
}

// ---- combination of the chunks -----------------------------------------------------------------

MUSER_INLINE void combine_head(const float* partials, const AttendArgs& a, uint32_t chunks,
                               uint32_t head, float* out) {
    const size_t row = 2 + size_t{a.head_dim};
    const size_t stride = a.heads * row;
    const float* mine = partials + head * row;
    float max = -kInfinity;
    for (uint32_t c = 0; c < chunks; ++c) {
        const float m = mine[c * stride];
        max = m > max ? m : max;
    }
    float sum = 0.0f;
    alignas(64) float acc[MUSER_MAX_HEAD_DIM] = {};
    for (uint32_t c = 0; c < chunks; ++c) {
        const float* part = mine + c * stride;
        const float weight = exp(part[0] - max);
        sum = fma(weight, part[1], sum);
        size_t d = 0;
        MUSER_VECTORS(d, a.head_dim) {
            store(acc + d, fma(splat(weight), load(part + 2 + d), load(acc + d)));
        }
        for (; d < a.head_dim; ++d) acc[d] = fma(weight, part[2 + d], acc[d]);
    }
    size_t d = 0;
    MUSER_VECTORS(d, a.head_dim) store(out + d, load(acc + d) / splat(sum));
    for (; d < a.head_dim; ++d) out[d] = acc[d] / sum;
}

Work combine_work(const Call& call) {
    const AttendArgs a = arguments<AttendArgs>(call);
    return {a.heads, 20 + view_of(call, a).chunks * (10 + a.head_dim / 8)};
}

void combine(const Call& call, uint64_t begin, uint64_t end) {
    const AttendArgs a = arguments<AttendArgs>(call);
    const uint32_t chunks = view_of(call, a).chunks;
    for (uint64_t head = begin; head < end; ++head) {
        combine_head(buffer<const float>(call, 2), a, chunks, static_cast<uint32_t>(head),
                     buffer<float>(call, 3) + head * a.head_dim);
    }
}

// A unit ends on a block and on a head: a block of whole heads, or everything where heads and
// blocks do not line up.
MUSER_INLINE uint32_t heads_per_unit(const AttendArgs& a) {
    if (a.blocks == 0) return 1;
    return MUSER_BLOCK % a.head_dim == 0 ? MUSER_BLOCK / a.head_dim : a.heads;
}

Work combine_gate_work(const Call& call) {
    const AttendArgs a = arguments<AttendArgs>(call);
    const uint32_t per_unit = heads_per_unit(a);
    return {
        (a.heads + per_unit - 1) / per_unit,
        uint64_t{per_unit} * (20 + a.head_dim + view_of(call, a).chunks * (10 + a.head_dim / 8))};
}

void combine_gate(const Call& call, uint64_t begin, uint64_t end) {
    const AttendArgs a = arguments<AttendArgs>(call);
    const uint32_t chunks = view_of(call, a).chunks;
    const uint32_t per_unit = heads_per_unit(a);
    const size_t n = size_t{a.heads} * a.head_dim;
    float* out = buffer<float>(call, 4);
    for (uint64_t unit = begin; unit < end; ++unit) {
        const uint32_t first = static_cast<uint32_t>(unit) * per_unit;
        const uint32_t last = first + per_unit < a.heads ? first + per_unit : a.heads;
        for (uint32_t head = first; head < last; ++head) {
            combine_head(buffer<const float>(call, 2), a, chunks, head,
                         out + size_t{head} * a.head_dim);
        }
        const float* gate = buffer<const float>(call, 3);
        size_t i = size_t{first} * a.head_dim;
        const size_t stop = size_t{last} * a.head_dim;
        MUSER_VECTORS(i, stop) store(out + i, load(out + i) * sigmoid(load(gate + i)));
        for (; i < stop; ++i) out[i] = out[i] * sigmoid(gate[i]);
        if (a.blocks != 0) {
            for (size_t b = size_t{first} * a.head_dim / MUSER_BLOCK; b < stop / MUSER_BLOCK; ++b) {
                quantise_block(out + b * MUSER_BLOCK, n, b, buffer<std::byte>(call, 5));
            }
        }
    }
}

constexpr KernelImpl kTable[] = {
    {"attend_chunks_f16", attend_work, attend_chunks<PlaneF16>},
    {"attend_chunks_f32", attend_work, attend_chunks<PlaneF32>},
    {"attend_chunks_gqa_f16", attend_gqa_work, attend_chunks_gqa<PlaneF16>},
    {"attend_chunks_gqa_f32", attend_gqa_work, attend_chunks_gqa<PlaneF32>},
    {"attend_combine_f32", combine_work, combine},
    {"attend_combine_gate_b16", combine_gate_work, combine_gate},
};

}  // namespace

KernelTable attention_kernels() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace muser::device::cpu::MUSER_ISA
