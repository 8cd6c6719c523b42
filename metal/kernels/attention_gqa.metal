#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// One chunk of 64 keys for all query heads of one KV head (docs/numerics.md §4): K and V are read
// once. 256 threads: each SIMD group holds eight keys in registers and meets every head with them.
#include "attention.h"

template <typename Plane>
static inline void attend_chunk_gqa(constant AttendArgs& args, constant StepValues* step,
                                    device const float* q,
                                    device const typename Plane::Stored* keys,
                                    device const typename Plane::Stored* values,
                                    device float* partials, threadgroup float* scores, uint3 group,
                                    uint tid, uint lane, uint simd) {
    constant KvView* view = kv_view(step, args.view);
    if (group.x >= view->chunks) return;
    const Chunk chunk = chunk_of(view, group.x);
    const uint kv_head = group.y;
    const uint queries = args.heads / args.kv_heads;
    const uint width = args.kv_heads * args.head_dim;
    const uint first_head = kv_head * queries;

    const uint quarter = lane % 4;
    const uint slot = 8 * simd + lane / 4;
    const bool here = slot >= chunk.first && slot < chunk.end;
    // Dims 32 i + 8 quarter ... + 7 below head_dim.
    const uint pieces = (args.head_dim + 31 - 8 * quarter) / 32;
    Eight key[MUSER_MAX_HEAD_DIM / 32];
    if (here) {
        const size_t row =
            slot_element(view, chunk, slot, args.capacity, width, kv_head, args.head_dim);
        for (uint i = 0; i < MUSER_MAX_HEAD_DIM / 32; ++i) {
            if (i < pieces) key[i] = Plane::load_eight_at(keys + row + 32 * i + 8 * quarter);
        }
    }
    for (uint h = 0; h < queries; ++h) {
        device const float* query =
            q + static_cast<size_t>(first_head + h) * args.head_dim + 8 * quarter;
        Eight part = no_partials();
        if (here) {
            for (uint i = 0; i < MUSER_MAX_HEAD_DIM / 32; ++i) {
                if (i < pieces) part = add_products(part, load_eight(query + 32 * i), key[i]);
            }
        }
        const float score = score_tree(part) * args.scale;
        if (quarter == 0) scores[MUSER_CHUNK * h + slot] = score;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    const size_t partial_floats = 2 + args.head_dim;
    device float* partial =
        partials + (static_cast<size_t>(group.x) * args.heads + first_head) * partial_floats;
    for (uint h = simd; h < queries; h += 8) {
        softmax_chunk(scores + MUSER_CHUNK * h, chunk, partial + h * partial_floats, lane);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // Eight dims of one head per item, so that V comes in 16-byte pieces.
    const uint columns = args.head_dim / 8;
    for (uint item = tid; item < queries * columns; item += MUSER_SHAPE_ATTEND_GQA_THREADS) {
        const uint h = item / columns;
        const uint d = 8 * (item % columns);
        Eight sum = no_partials();
        for (uint k = chunk.first; k < chunk.end; ++k) {
            const size_t row =
                slot_element(view, chunk, k, args.capacity, width, kv_head, args.head_dim);
            const float p = scores[MUSER_CHUNK * h + k];
            const Eight value = Plane::load_eight_at(values + row + d);
            for (uint u = 0; u < 8; ++u) sum.v[u] = MUSER_FMA(p, value.v[u], sum.v[u]);
        }
        device float* out = partial + h * partial_floats + 2 + d;
        for (uint u = 0; u < 8; ++u) out[u] = sum.v[u];
    }
}

#define MUSER_ATTEND_GQA(P, Plane)                                                               \
    kernel void attend_chunks_gqa_##P(                                                           \
        constant AttendArgs& args [[buffer(0)]], constant StepValues* step [[buffer(1)]],        \
        device const float* q [[buffer(2)]], device const Plane::Stored* keys [[buffer(3)]],     \
        device const Plane::Stored* values [[buffer(4)]], device float* partials [[buffer(5)]],  \
        MUSER_THREAD) {                                                                          \
        MUSER_THREADGROUP(float, scores, MUSER_CHUNK* MUSER_SHAPE_GQA_MAX_QUERIES);              \
        attend_chunk_gqa<Plane>(args, step, q, keys, values, partials, scores, group, tid, lane, \
                                simd);                                                           \
    }                                                                                            \
    MUSER_KERNEL(attend_chunks_gqa_##P, AttendArgs, 5)

MUSER_ATTEND_GQA(f16, PlaneF16)
MUSER_ATTEND_GQA(f32, PlaneF32)
