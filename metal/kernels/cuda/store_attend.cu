// The whole of a decode step's attention in one launch, where head_dim is 128 and planes are f16:
// norm, rotation and store (qk_norm_rope_store_f16), chunks (attend_chunks_gqa_f16), combination
// and gate (attend_combine_gate_b16), with their bits.
//
// The first blocks have a chunk and a group of query heads each. Every one of them norms and
// rotates the heads that it needs, and leaves q as it is: nothing else reads it. The blocks of the
// newest chunk make the new row of K and V for themselves; one of them for each KV head also stores
// it. The last blocks have two heads each, which they combine when the chunks of those are there.
//
// Rows of earlier steps are asked for before the kernels in front are done, unless this recording
// writes some of them (args.early). Of those kernels the last may be the gate's product, which only
// the combination needs: then blocks count what they need of q, k and v and of the gate (args.done,
// args.gates).
#include "attention_128.cuh"

union StoreAttendShared {
    AttendShared attend;
    CombineShared combine;
};

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

// Until q, k and v are there.
static __device__ __forceinline__ void wait_for_heads(const MuserAttentionArgs& args) {
    if (args.done == 0) {
        wait_for_previous();
        return;
    }
    if (threadIdx.x == 0) wait_until(args.done, args.groups);
    __syncthreads();
}

// One chunk and the heads of one group.
static __device__ __forceinline__ void attend_and_store(const MuserAttentionArgs& args,
                                                        AttendShared& shared,
                                                        const StepValues* step, const KvView* view,
                                                        uint index, uint group_index) {
    const uint tid = threadIdx.x;
    const uint lane = tid & 31u;
    const uint simd = tid >> 5;
    const Chunk chunk = chunk_of(view, index);
    const QueryGroup group = query_group(args.heads, args.kv_heads, group_index);
    // The new row is the last visible one; 64 is no slot.
    const bool has_new = index + 1 == view->chunks;
    const uint newest = has_new ? chunk.end - 1 : MUSER_CHUNK;
    const bool stores = group.first_head % (args.heads / args.kv_heads) == 0;

    if (args.early == 0) wait_for_previous();
    ask_for_rows(shared, view, chunk, newest, args.capacity, args.kv_heads, group.kv_head,
                 reinterpret_cast<const ushort*>(args.plane_k),
                 reinterpret_cast<const ushort*>(args.plane_v), tid);
    const bool has_query = simd < group.count;
    HeadRotation rotation;
    float weight[4];
    if (has_query || simd == MUSER_QUERIES) {
        const float* weights =
            reinterpret_cast<const float*>(has_query ? args.q_weight : args.k_weight);
#pragma unroll
        for (uint i = 0; i < 4; ++i) weight[i] = __ldg(weights + lane + 32 * i);
        if (args.rope != 0) rotation = head_rotation(step, lane);
    }
    wait_for_heads(args);
    float x[4] = {};
    if (simd < MUSER_QUERIES) {
        if (has_query) {
            const float* q = reinterpret_cast<const float*>(args.q);
            make_head(args, q + (group.first_head + simd) * MUSER_D, weight, rotation, lane, x);
        }
#pragma unroll
        for (uint i = 0; i < 4; ++i) shared.queries[simd * MUSER_D + lane + 32 * i] = x[i];
    } else if (has_new && simd == MUSER_QUERIES) {
        const float* k = reinterpret_cast<const float*>(args.k) + group.kv_head * MUSER_D;
        make_head(args, k, weight, rotation, lane, x);
        ushort* row = reinterpret_cast<ushort*>(shared.keys + newest * (MUSER_D / 8));
#pragma unroll
        for (uint i = 0; i < 4; ++i) row[lane + 32 * i] = PlaneF16::store(x[i]);
        __syncwarp();
        if (stores) {
            store_row(args, step, view, group.kv_head, args.plane_k, args.journal_k, row, lane);
        }
    } else if (has_new) {
        const float* v = reinterpret_cast<const float*>(args.v) + group.kv_head * MUSER_D;
        ushort* row = reinterpret_cast<ushort*>(shared.values + newest * (MUSER_D / 8));
#pragma unroll
        for (uint i = 0; i < 4; ++i) {
            row[lane + 32 * i] = PlaneF16::store(__ldcg(v + lane + 32 * i));
        }
        __syncwarp();
        if (stores) {
            store_row(args, step, view, group.kv_head, args.plane_v, args.journal_v, row, lane);
        }
    }
    wait_for_copies();
    __syncthreads();
    attend_chunk(shared, chunk, group.count, args.scale,
                 reinterpret_cast<float*>(args.partials) +
                     (static_cast<size_t>(index) * args.heads + group.first_head) * (2 + MUSER_D),
                 tid);
    __syncthreads();
    if (tid == 0) add_and_tell(args.counters + 4 * group_index, 1);
}

// The combination of two heads, when their chunks are there.
static __device__ __forceinline__ void combine(const MuserAttentionArgs& args,
                                               CombineShared& shared, uint chunks, uint pair) {
    const QueryGroup group = query_group(args.heads, args.kv_heads, 0);
    const uint groups = args.heads / group.count;
    const uint pairs = args.heads / 2;
    // The gate is there first where the window is long.
    if (args.gates == 0) {
        wait_for_previous();
    } else {
        if (threadIdx.x == 0) wait_until(args.gates + 4 * pair, 8);
        __syncthreads();
    }
    const float* gate = reinterpret_cast<const float*>(args.gate) + MUSER_BLOCK * pair;
    const float opened = muser_sigmoid(__ldcg(gate + threadIdx.x));
    if (threadIdx.x == 0) wait_until(args.counters + 4 * (2 * pair / group.count), chunks);
    __syncthreads();
    combine_pair(shared, pair, args.heads, chunks, reinterpret_cast<const float*>(args.partials),
                 opened, reinterpret_cast<float*>(args.attention),
                 args.blocks == 0 ? nullptr : reinterpret_cast<uchar*>(args.form), threadIdx.x);
    if (threadIdx.x != 255) return;
    // Who is last of all puts the zeros back: everybody has seen what was counted.
    uint* counters = reinterpret_cast<uint*>(args.counters);
    if (atomicAdd(counters + groups, 1u) + 1 == pairs) {
        for (uint i = 0; i <= groups; ++i) counters[i] = 0;
        if (args.done != 0) *reinterpret_cast<uint2*>(args.done) = make_uint2(0, 0);
        for (uint i = 0; args.gates != 0 && i < pairs; ++i) {
            reinterpret_cast<uint*>(args.gates)[i] = 0;
        }
    }
    wait_for_previous();  // what is behind this launch is behind those in front, too
}

// Grid: groups of query heads for each chunk of a bucket, the newest chunk first; then pairs of
// heads. Those in front never wait for those behind; should blocks not start in their order, there
// is room for all that wait beside one that does not (KernelLibrary::in_turn).
extern "C" __global__ void __launch_bounds__(32 * MUSER_ATTEND_WARPS, 2)
    muser_store_attend_128_f16(const __grid_constant__ MuserAttentionArgs args) {
    __shared__ StoreAttendShared shared;
    let_next_start();
    const StepValues* step = reinterpret_cast<const StepValues*>(args.step);
    const KvView* view = kv_view(step, args.view);
    const uint chunks = view->chunks;
    const uint pairs = args.heads / 2;
    if (blockIdx.x >= gridDim.x - pairs) {
        if (threadIdx.x >= 256) return;
        combine(args, shared.combine, chunks, blockIdx.x - (gridDim.x - pairs));
        return;
    }
    const uint groups = args.heads / query_group(args.heads, args.kv_heads, 0).count;
    const uint age = blockIdx.x / groups;
    if (age >= chunks) return;
    attend_and_store(args, shared.attend, step, view, chunks - 1 - age, blockIdx.x % groups);
}
