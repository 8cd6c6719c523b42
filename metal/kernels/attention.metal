#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// One chunk of 64 keys for one query head (docs/numerics.md §4): scores, softmax, weighted values.
#include "attention.h"

template <typename Plane>
static inline void attend_chunk(constant AttendArgs& args, constant StepValues* step,
                                device const float* q, device const typename Plane::Stored* keys,
                                device const typename Plane::Stored* values, device float* partials,
                                threadgroup float* scores, uint3 group, uint tid, uint lane,
                                uint simd) {
    constant KvView* view = kv_view(step, args.view);
    // The grid is a bucket's; the step slot says how many chunks there are.
    if (group.x >= view->chunks) return;
    const Chunk chunk = chunk_of(view, group.x);
    const uint head = group.y;
    const uint kv_head = head / (args.heads / args.kv_heads);
    const uint width = args.kv_heads * args.head_dim;
    device const float* query = q + static_cast<size_t>(head) * args.head_dim;
    device float* partial =
        partials + (static_cast<size_t>(group.x) * args.heads + head) * (2 + args.head_dim);

    const uint quarter = lane % 4;
    for (uint pass = 0; pass < 2; ++pass) {
        const uint slot = 32 * pass + 8 * simd + lane / 4;
        const bool here = slot >= chunk.first && slot < chunk.end;
        Eight part = no_partials();
        if (here) {
            const size_t row =
                slot_element(view, chunk, slot, args.capacity, width, kv_head, args.head_dim);
            for (uint d = 8 * quarter; d < args.head_dim; d += 32) {
                part =
                    add_products(part, load_eight(query + d), Plane::load_eight_at(keys + row + d));
            }
        }
        const float score = score_tree(part) * args.scale;
        if (quarter == 0) scores[slot] = score;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd == 0) softmax_chunk(scores, chunk, partial, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint d = tid; d < args.head_dim; d += MUSER_SHAPE_ATTEND_THREADS) {
        float sum = 0.0f;
        for (uint slot = chunk.first; slot < chunk.end; ++slot) {
            const size_t row =
                slot_element(view, chunk, slot, args.capacity, width, kv_head, args.head_dim);
            sum = MUSER_FMA(scores[slot], Plane::load(values[row + d]), sum);
        }
        partial[2 + d] = sum;
    }
}

#define MUSER_ATTEND(P, Plane)                                                                  \
    kernel void attend_chunks_##P(                                                              \
        constant AttendArgs& args [[buffer(0)]], constant StepValues* step [[buffer(1)]],       \
        device const float* q [[buffer(2)]], device const Plane::Stored* keys [[buffer(3)]],    \
        device const Plane::Stored* values [[buffer(4)]], device float* partials [[buffer(5)]], \
        MUSER_THREAD) {                                                                         \
        MUSER_THREADGROUP(float, scores, MUSER_CHUNK);                                          \
        attend_chunk<Plane>(args, step, q, keys, values, partials, scores, group, tid, lane,    \
                            simd);                                                              \
    }                                                                                           \
    MUSER_KERNEL(attend_chunks_##P, AttendArgs, 5)

MUSER_ATTEND(f16, PlaneF16)
MUSER_ATTEND(f32, PlaneF32)
