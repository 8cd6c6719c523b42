// The whole of a decode step's attention in one launch, where head_dim is 128 and planes are f16:
// norm, rotation and store (qk_norm_rope_store_f16), chunks (attend_chunks_gqa_f16), combination
// and gate (attend_combine_gate_b16), with their bits.
//
// Every block norms and rotates the four query heads that it needs, and leaves q as it is: nothing
// else reads it. The blocks of the newest chunk make the new row of K and V for themselves; one of
// them for each KV head also stores it. Who finishes last of the chunks of four heads combines
// them.
//
// Rows of earlier steps are asked for before the kernels in front are done, unless this recording
// writes some of them (args.early). Of those kernels the last may be the gate's product, which only
// the combination needs: then the blocks count the groups of q, k and v that are there (args.done).
#include "attention_128.cuh"

// Partial rows that a thread of the combination has on their way: a window of 2,048 keys has 33
// chunks.
#define MUSER_STORE_ROWS_AHEAD 33

struct StoreAttendShared {
    AttendShared attend;
    uint4 new_key[MUSER_D / 8];
    float largest[8];
    uint arrived;
};
struct ChunkFactor {
    float factor;
    float sum;
};
static_assert(sizeof(ChunkFactor) * MUSER_QUERIES * MUSER_MOST_CHUNKS <=
                  sizeof(AttendShared::value_rows),
              "factors lie where the values were");

// The head `simd` of the block's queries, or the new row of K.
static __device__ __forceinline__ void make_head(const MuserAttentionArgs& args, const float* from,
                                                 const float (&weight)[4],
                                                 const HeadRotation& rotation, uint lane,
                                                 float (&x)[4]) {
#pragma unroll
    for (uint i = 0; i < 4; ++i) x[i] = __ldcg(from + lane + 32 * i);
    norm_and_rotate(x, weight, args.eps, args.rope != 0, rotation, lane);
}

// Puts a row of K or V where the step wants it; the row that was there goes to the journal first.
static __device__ __forceinline__ void store_row(const MuserAttentionArgs& args,
                                                 const StepValues* step, const KvView* view,
                                                 uint kv_head, uint64_t plane_address,
                                                 uint64_t journal_address, const ushort* row,
                                                 uint lane) {
    const size_t width = static_cast<size_t>(args.kv_heads) * MUSER_D;
    const size_t offset = static_cast<size_t>(kv_head) * MUSER_D;
    ushort* plane = reinterpret_cast<ushort*>(plane_address) + view->write_row * width + offset;
    if (args.journal != 0 && step->overwrite != 0) {
        ushort* journal =
            reinterpret_cast<ushort*>(journal_address) + step->journal_row * width + offset;
#pragma unroll
        for (uint i = 0; i < 4; ++i) journal[lane + 32 * i] = plane[lane + 32 * i];
    }
#pragma unroll
    for (uint i = 0; i < 4; ++i) plane[lane + 32 * i] = row[lane + 32 * i];
}

// Two dims of one head per thread.
static __device__ __forceinline__ void combine_heads(const MuserAttentionArgs& args,
                                                     StoreAttendShared& shared, uint chunks,
                                                     uint first_head) {
    const uint tid = threadIdx.x;
    const uint lane = tid & 31u;
    const uint h = tid / 64;
    const uint pair = tid % 64;
    const size_t stride = static_cast<size_t>(args.heads) * (2 + MUSER_D);
    const float* first = reinterpret_cast<const float*>(args.partials) +
                         static_cast<size_t>(first_head + h) * (2 + MUSER_D);
    const uint element = MUSER_D * first_head + 2 * tid;
    const float2 gate = __ldcg(
        reinterpret_cast<const float2*>(reinterpret_cast<const float*>(args.gate) + element));
    // The rows are long in coming, so many at a time, and the first before their factors are made.
    float2 rows[MUSER_STORE_ROWS_AHEAD];
    const auto ask_for_rows = [&](uint begin) {
#pragma unroll
        for (uint i = 0; i < MUSER_STORE_ROWS_AHEAD; ++i) {
            const uint c = begin + i;
            if (c < chunks) {
                rows[i] = __ldcg(reinterpret_cast<const float2*>(first + c * stride + 2) + pair);
            }
        }
    };
    ask_for_rows(0);

    ChunkFactor* factors =
        reinterpret_cast<ChunkFactor*>(shared.attend.value_rows) + h * MUSER_MOST_CHUNKS;
    float m = MUSER_BITS_FLOAT(0xff800000u);
    for (uint c = pair; c < chunks; c += 64) {
        const float2 head = __ldcg(reinterpret_cast<const float2*>(first + c * stride));
        factors[c] = {head.x, head.y};
        m = head.x > m ? head.x : m;
    }
    m = simd_largest(m);
    if (lane == 0) shared.largest[tid >> 5] = m;
    __syncthreads();
    const float other = shared.largest[(tid >> 5) ^ 1];
    m = other > m ? other : m;
    for (uint c = pair; c < chunks; c += 64) factors[c].factor = muser_exp(factors[c].factor - m);
    __syncthreads();
    float sum = 0.0f;
    float2 out = make_float2(0.0f, 0.0f);
    for (uint begin = 0; begin < chunks; begin += MUSER_STORE_ROWS_AHEAD) {
        if (begin > 0) ask_for_rows(begin);
#pragma unroll
        for (uint i = 0; i < MUSER_STORE_ROWS_AHEAD; ++i) {
            const uint c = begin + i;
            if (c >= chunks) break;
            const ChunkFactor a = factors[c];
            sum = MUSER_FMA(a.factor, a.sum, sum);
            out.x = MUSER_FMA(a.factor, rows[i].x, out.x);
            out.y = MUSER_FMA(a.factor, rows[i].y, out.y);
        }
    }
    out.x = (out.x / sum) * muser_sigmoid(gate.x);
    out.y = (out.y / sum) * muser_sigmoid(gate.y);
    reinterpret_cast<float2*>(reinterpret_cast<float*>(args.attention) + element)[0] = out;
    if (args.blocks == 0) return;
    float* gated = reinterpret_cast<float*>(shared.attend.queries);
    gated[2 * tid] = out.x;
    gated[2 * tid + 1] = out.y;
    __syncthreads();
    const uint block = tid >> 5;  // of the two that four heads are
    if (block >= MUSER_QUERIES * MUSER_D / MUSER_BLOCK) return;
    Eight values;
#pragma unroll
    for (uint i = 0; i < 8; ++i) values.v[i] = gated[MUSER_BLOCK * block + 8 * lane + i];
    write_block(reinterpret_cast<uchar*>(args.form), args.heads * MUSER_D,
                first_head * MUSER_D / MUSER_BLOCK + block, values, lane);
}

// Until q, k and v are there.
static __device__ __forceinline__ void wait_for_heads(const MuserAttentionArgs& args) {
    if (args.done == 0) {
        wait_for_previous();
        return;
    }
    if (threadIdx.x == 0) wait_until(args.done, args.groups);
    __syncthreads();
}

// Grid: chunks (a bucket's), KV heads, quarters of a KV head's queries.
extern "C" __global__ void __launch_bounds__(256, 3)
    muser_store_attend_128_f16(const __grid_constant__ MuserAttentionArgs args) {
    __shared__ StoreAttendShared shared;
    let_next_start();
    const StepValues* step = reinterpret_cast<const StepValues*>(args.step);
    const KvView* view = kv_view(step, args.view);
    const uint chunks = view->chunks;
    if (blockIdx.x >= chunks) return;
    const uint tid = threadIdx.x;
    const uint lane = tid & 31u;
    const uint simd = tid >> 5;
    const Chunk chunk = chunk_of(view, blockIdx.x);
    const uint kv_head = blockIdx.y;
    const uint width = args.kv_heads * MUSER_D;
    const uint first_head = kv_head * (args.heads / args.kv_heads) + MUSER_QUERIES * blockIdx.z;
    // The new row is the last visible one; 64 is no slot.
    const bool has_new = blockIdx.x + 1 == chunks;
    const uint newest = has_new ? chunk.end - 1 : MUSER_CHUNK;

    if (args.early == 0) wait_for_previous();
    const KeyPlace place = key_place(tid);
    uint4 key[4] = {};
    if (place.slot >= chunk.first && place.slot < chunk.end && place.slot != newest) {
        const size_t row =
            slot_element(view, chunk, place.slot, args.capacity, width, kv_head, MUSER_D);
        ask_for_row(shared.attend, place, row, reinterpret_cast<const ushort*>(args.plane_k),
                    reinterpret_cast<const ushort*>(args.plane_v), key);
    }
    // Warps 0 to 3 have a query head each, the next one the new row of K, the next one that of V.
    HeadRotation rotation;
    float weight[4];
    if (simd <= MUSER_QUERIES) {
        const float* weights =
            reinterpret_cast<const float*>(simd < MUSER_QUERIES ? args.q_weight : args.k_weight);
#pragma unroll
        for (uint i = 0; i < 4; ++i) weight[i] = __ldg(weights + lane + 32 * i);
        if (args.rope != 0) rotation = head_rotation(step, lane);
    }
    wait_for_heads(args);
    float x[4];
    if (simd < MUSER_QUERIES) {
        const float* q = reinterpret_cast<const float*>(args.q) + (first_head + simd) * MUSER_D;
        make_head(args, q, weight, rotation, lane, x);
        float* query = reinterpret_cast<float*>(shared.attend.queries) + simd * MUSER_D;
#pragma unroll
        for (uint i = 0; i < 4; ++i) query[lane + 32 * i] = x[i];
    } else if (has_new && simd == MUSER_QUERIES) {
        const float* k = reinterpret_cast<const float*>(args.k) + kv_head * MUSER_D;
        make_head(args, k, weight, rotation, lane, x);
        ushort* row = reinterpret_cast<ushort*>(shared.new_key);
#pragma unroll
        for (uint i = 0; i < 4; ++i) row[lane + 32 * i] = PlaneF16::store(x[i]);
        __syncwarp();
        if (blockIdx.z == 0) {
            store_row(args, step, view, kv_head, args.plane_k, args.journal_k, row, lane);
        }
    } else if (has_new && simd == MUSER_QUERIES + 1) {
        const float* v = reinterpret_cast<const float*>(args.v) + kv_head * MUSER_D;
        ushort* row = reinterpret_cast<ushort*>(shared.attend.value_rows + newest * (MUSER_D / 8));
#pragma unroll
        for (uint i = 0; i < 4; ++i)
            row[lane + 32 * i] = PlaneF16::store(__ldcg(v + lane + 32 * i));
        __syncwarp();
        if (blockIdx.z == 0) {
            store_row(args, step, view, kv_head, args.plane_v, args.journal_v, row, lane);
        }
    }
    __syncthreads();
    if (place.slot == newest) {
#pragma unroll
        for (uint i = 0; i < 4; ++i) key[i] = shared.new_key[4 * i + place.quarter];
    }
    attend_chunk(shared.attend, key, chunk, args.scale,
                 reinterpret_cast<float*>(args.partials) +
                     (static_cast<size_t>(blockIdx.x) * args.heads + first_head) * (2 + MUSER_D));

    // Whoever is last sees what the others wrote.
    __threadfence();
    __syncthreads();
    uint* counter = reinterpret_cast<uint*>(args.counters) + gridDim.z * blockIdx.y + blockIdx.z;
    if (tid == 0) shared.arrived = atomicAdd(counter, 1u) + 1;
    __syncthreads();
    if (shared.arrived != chunks) return;
    __threadfence();
    wait_for_previous();
    if (tid == 0) {
        *counter = 0;
        // All blocks of these heads have seen q, k and v; who is last of all puts the zero back.
        uint* heads = reinterpret_cast<uint*>(args.counters) + gridDim.y * gridDim.z;
        if (args.done != 0 && atomicAdd(heads, 1u) + 1 == gridDim.y * gridDim.z) {
            *heads = 0;
            *reinterpret_cast<uint2*>(args.done) = make_uint2(0, 0);
        }
    }
    combine_heads(args, shared, chunks, first_head);
}
