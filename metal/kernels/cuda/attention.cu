// Decode attention where head_dim is 128 and planes are f16 (docs/numerics.md §4): what
// attend_chunks_gqa_f16, attend_combine_gate_b16 and qk_norm_rope_store_f16 do, with more blocks,
// loads that do not wait for each other, and values kept in registers. All three in one launch:
// store_attend.cu.
#include "attention_128.cuh"

#define MUSER_ROWS_AHEAD 32  // partial rows that a thread of the combination has on their way

// Grid: chunks (a bucket's), KV heads, quarters of a KV head's queries. Three blocks to a
// multiprocessor: a window of 2,048 is one wave on 132 of them.
extern "C" __global__ void __launch_bounds__(256, 3)
    muser_attend_128_f16(const AttendArgs args, const StepValues* step, const float* q,
                         const ushort* keys, const ushort* values, float* partials) {
    __shared__ AttendShared shared;
    muser_enter();
    const uint tid = threadIdx.x;
    const KvView* view = kv_view(step, args.view);
    if (blockIdx.x >= view->chunks) return;
    const Chunk chunk = chunk_of(view, blockIdx.x);
    const uint kv_head = blockIdx.y;
    const uint width = args.kv_heads * MUSER_D;
    const uint first_head = kv_head * (args.heads / args.kv_heads) + MUSER_QUERIES * blockIdx.z;

    const KeyPlace place = key_place(tid);
    uint4 key[4] = {};
    if (place.slot >= chunk.first && place.slot < chunk.end) {
        const size_t row =
            slot_element(view, chunk, place.slot, args.capacity, width, kv_head, MUSER_D);
        ask_for_row(shared, place, row, keys, values, key);
    }
    if (tid < MUSER_QUERIES * MUSER_D / 4) {
        shared.queries[tid] = reinterpret_cast<const float4*>(q + first_head * MUSER_D)[tid];
    }
    __syncthreads();
    attend_chunk(
        shared, key, chunk, args.scale,
        partials + (static_cast<size_t>(blockIdx.x) * args.heads + first_head) * (2 + MUSER_D));
}

// A block has two heads, that is one activation block. The chunks' factors are made once per head.
extern "C" __global__ void __launch_bounds__(256)
    muser_combine_gate_128(const AttendArgs args, const StepValues* step, const float* partials,
                           const float* gate, float* attention, uchar* form) {
    __shared__ float factor[2][MUSER_MOST_CHUNKS];
    __shared__ float sums[2][MUSER_MOST_CHUNKS];
    __shared__ float largest[8];
    __shared__ float gated[MUSER_BLOCK];
    muser_enter();
    const uint tid = threadIdx.x;
    const uint lane = tid & 31u;
    const uint half = tid / MUSER_D;
    const uint local = tid % MUSER_D;
    const uint element = MUSER_BLOCK * blockIdx.x + tid;
    const uint chunks = kv_view(step, args.view)->chunks;
    const float mine_gate = gate[element];
    const size_t stride = static_cast<size_t>(args.heads) * (2 + MUSER_D);
    const float* first = partials + static_cast<size_t>(2 * blockIdx.x + half) * (2 + MUSER_D);
    // The rows are long in coming, so many at a time, and the first before their factors are made.
    float rows[MUSER_ROWS_AHEAD];
    const auto ask_for_rows = [&](uint begin) {
#pragma unroll
        for (uint i = 0; i < MUSER_ROWS_AHEAD; ++i) {
            const uint c = begin + i;
            rows[i] = c < chunks ? __ldcg(first + 2 + local + c * stride) : 0.0f;
        }
    };
    ask_for_rows(0);

    float m = MUSER_BITS_FLOAT(0xff800000u);
    for (uint c = local; c < chunks; c += MUSER_D) {
        const float value = first[c * stride];
        factor[half][c] = value;
        sums[half][c] = first[c * stride + 1];
        m = value > m ? value : m;
    }
    m = simd_largest(m);
    if (lane == 0) largest[tid >> 5] = m;
    __syncthreads();
#pragma unroll
    for (uint i = 0; i < 4; ++i) m = largest[4 * half + i] > m ? largest[4 * half + i] : m;
    for (uint c = local; c < chunks; c += MUSER_D) factor[half][c] = muser_exp(factor[half][c] - m);
    __syncthreads();
    float sum = 0.0f;
    float out = 0.0f;
    for (uint begin = 0; begin < chunks; begin += MUSER_ROWS_AHEAD) {
        if (begin > 0) ask_for_rows(begin);
#pragma unroll
        for (uint i = 0; i < MUSER_ROWS_AHEAD; ++i) {
            const uint c = begin + i;
            if (c >= chunks) break;
            const float a = factor[half][c];
            sum = MUSER_FMA(a, sums[half][c], sum);
            out = MUSER_FMA(a, rows[i], out);
        }
    }
    const float value = (out / sum) * muser_sigmoid(mine_gate);
    attention[element] = value;
    if (args.blocks == 0) return;
    gated[tid] = value;
    __syncthreads();
    if (tid >= 32) return;
    Eight values;
#pragma unroll
    for (uint i = 0; i < 8; ++i) values.v[i] = gated[8 * lane + i];
    write_block(form, args.heads * MUSER_D, blockIdx.x, values, lane);
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
