// Decode attention where head_dim is 128 and planes are f16 (docs/numerics.md §4): what
// attend_chunks_gqa_f16, attend_combine_gate_b16 and qk_norm_rope_store_f16 do, with more blocks,
// and loads that do not wait for each other. All three in one launch: store_attend.cu.
#include "attention_128.cuh"

// Grid: chunks (a bucket's), groups of query heads.
extern "C" __global__ void __launch_bounds__(256, 2)
    muser_attend_128_f16(const AttendArgs args, const StepValues* step, const float* q,
                         const ushort* keys, const ushort* values, float* partials) {
    __shared__ AttendShared shared;
    muser_enter();
    const KvView* view = kv_view(step, args.view);
    if (blockIdx.x >= view->chunks) return;
    const Chunk chunk = chunk_of(view, blockIdx.x);
    const QueryGroup group = query_group(args.heads, args.kv_heads, blockIdx.y);
    ask_for_rows(shared, view, chunk, MUSER_CHUNK, args.capacity, args.kv_heads, group.kv_head,
                 keys, values, threadIdx.x);
    for (uint i = threadIdx.x; i < MUSER_QUERIES * MUSER_D; i += 256) {
        shared.queries[i] = i < group.count * MUSER_D ? q[group.first_head * MUSER_D + i] : 0.0f;
    }
    wait_for_copies();
    __syncthreads();
    attend_chunk(shared, chunk, group.count, args.scale,
                 partials + (static_cast<size_t>(blockIdx.x) * args.heads + group.first_head) *
                                (2 + MUSER_D),
                 threadIdx.x);
}

extern "C" __global__ void __launch_bounds__(256)
    muser_combine_gate_128(const AttendArgs args, const StepValues* step, const float* partials,
                           const float* gate, float* attention, uchar* form) {
    __shared__ CombineShared shared;
    muser_enter();
    const float opened = muser_sigmoid(gate[MUSER_BLOCK * blockIdx.x + threadIdx.x]);
    combine_pair(shared, blockIdx.x, args.heads, kv_view(step, args.view)->chunks, partials, opened,
                 attention, args.blocks == 0 ? nullptr : form, threadIdx.x);
}

// One warp per head: query heads, then k, then v. Elements lane + 32 i stay in registers.
extern "C" __global__ void __launch_bounds__(128)
    muser_qk_store_128_f16(const QkStoreArgs args, const StepValues* step, const float* q_weight,
                           const float* k_weight, float* q, const float* k, const float* v,
                           ushort* plane_k, ushort* plane_v, ushort* journal_k, ushort* journal_v) {
    let_next_start();
    const uint lane = threadIdx.x & 31u;
    const uint unit = 4 * blockIdx.x + (threadIdx.x >> 5);
    const bool is_q = unit < args.heads;
    const bool is_k = !is_q && unit < args.heads + args.kv_heads;
    const float* weights = is_q ? q_weight : k_weight;
    float weight[4];
#pragma unroll
    for (uint i = 0; i < 4; ++i) weight[i] = __ldg(weights + lane + 32 * i);
    wait_for_previous();
    if (unit >= args.heads + 2 * args.kv_heads) return;
    const uint kv_head = is_q ? 0 : (unit - args.heads) % args.kv_heads;
    const size_t offset = static_cast<size_t>(kv_head) * MUSER_D;
    const float* row = is_q ? q + static_cast<size_t>(unit) * MUSER_D : (is_k ? k : v) + offset;
    float x[4];
#pragma unroll
    for (uint i = 0; i < 4; ++i) x[i] = row[lane + 32 * i];
    if (is_q || is_k) {
        HeadRotation rotation;
        if (args.rope != 0) rotation = head_rotation(step, lane);
        norm_and_rotate(x, weight, args.eps, args.rope != 0, rotation, lane);
        if (is_q) {
            float* to = q + static_cast<size_t>(unit) * MUSER_D;
#pragma unroll
            for (uint i = 0; i < 4; ++i) to[lane + 32 * i] = x[i];
            return;
        }
    }
    const size_t width = static_cast<size_t>(args.kv_heads) * MUSER_D;
    const size_t at = kv_view(step, args.view)->write_row * width + offset;
    ushort* plane = (is_k ? plane_k : plane_v) + at;
    if (args.journal != 0 && step->overwrite != 0) {
        ushort* journal = (is_k ? journal_k : journal_v) + step->journal_row * width + offset;
#pragma unroll
        for (uint i = 0; i < 4; ++i) journal[lane + 32 * i] = plane[lane + 32 * i];
    }
#pragma unroll
    for (uint i = 0; i < 4; ++i) plane[lane + 32 * i] = PlaneF16::store(x[i]);
}
