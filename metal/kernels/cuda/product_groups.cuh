// Products of quantised matrices in groups of 32 interleaved rows with one block-form vector, a
// block for each group, or for two: 64 rows of a matrix so large that there are blocks enough, or
// the same 32 of gate and up.
//
// Its warps take superblocks in turn (warp, warp + warps, ...): all of a superblock's integers are
// exact whoever makes them. They leave (coefficient, integer) pairs in shared memory, and one warp
// per group, a lane per row, runs the contract's chain over them in order.
//
// A block starts while the kernels in front still run: it asks for its first weights before it
// waits for the activations.
#pragma once

#include "r32_copies.cuh"
#include "r32_mma.cuh"

struct R32Shared {
    char* places;       // for a superblock of each group, of this warp, or for two of one group
    R32Activations* x;  // of this warp: as many as r32_buffers says
    float2* pairs;
};
// With one group the next superblock's activations come to shared memory by themselves; with two
// there are registers to spare for them.
static __device__ __forceinline__ constexpr uint r32_buffers(uint groups) {
    return groups == 1 ? 2 : 1;
}
static __device__ __forceinline__ R32Shared r32_shared(const MuserProductArgs& args, uint groups,
                                                       uint4* memory) {
    const uint warp = threadIdx.x >> 5;
    const uint warps = blockDim.x >> 5;
    char* at = reinterpret_cast<char*>(memory);
    R32Shared shared;
    shared.places = at + warp * groups * args.stages * args.place_bytes;
    at += warps * groups * args.stages * args.place_bytes;
    shared.x = reinterpret_cast<R32Activations*>(at) + warp * r32_buffers(groups);
    at += warps * r32_buffers(groups) * sizeof(R32Activations);
    shared.pairs = reinterpret_cast<float2*>(at);
    return shared;
}

// The warp's first superblock of each of the N groups; where it may have two on their way, of one
// group, the second as well.
template <typename Type, uint N, bool kDeep>
static __device__ __forceinline__ void r32_ask_first(const MuserProductArgs& args,
                                                     const uchar* const (&weights)[N],
                                                     const R32Shared& shared) {
    const uint lane = threadIdx.x & 31u;
    const uint b = threadIdx.x >> 5;
    const uint64_t policy = weights_policy();
    // A flood of requests would hold up what the small kernel in front reads and writes.
    const auto ask = [&](char* to, const uchar* group, uint block, uint pace) {
        const uint step = (Type::kPieces + pace - 1) / pace;
        const uchar* from = group + block * static_cast<size_t>(r32_group_bytes<Type>());
#pragma unroll 1
        for (uint first = 0; first < Type::kPieces; first += step) {
            const uint past = min(first + step, static_cast<uint>(Type::kPieces));
            if (first > 0) wait_for_all_but<0>();
            if (block < args.blocks) {
                r32_fetch_pieces<Type>(reinterpret_cast<uint4*>(to), from, first, past, lane,
                                       policy);
            }
            commit_copies();
        }
    };
#pragma unroll
    for (uint i = 0; i < N; ++i) {
        if (i > 0 && args.paced > 1) wait_for_all_but<0>();
        ask(shared.places + i * args.place_bytes, weights[i], b, args.paced);
    }
    if (kDeep && args.stages > 1) {
        ask(shared.places + args.place_bytes, weights[0], b + (blockDim.x >> 5), 1);
    }
}

// The block's part of the rows that attention will read. That is a hint: nothing of theirs is
// touched before the kernels in front are done.
static __device__ __forceinline__ void r32_prefetch_rows(const MuserProductArgs& args) {
    if (args.row_bytes == 0 || threadIdx.x >= 2) return;
    const uint64_t step = (args.row_bytes / gridDim.x + 127) / 128 * 128;
    const uint64_t begin = step * blockIdx.x;
    if (begin >= args.row_bytes) return;
    prefetch_run(reinterpret_cast<const uchar*>(args.rows[threadIdx.x]) + begin,
                 static_cast<uint>(min(step, args.row_bytes - begin)));
}

// Until the activations are there.
static __device__ __forceinline__ void wait_for_input(const MuserProductArgs& args) {
    if (args.told == 0) {
        wait_for_previous();
        if (args.tells != 0 && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
            asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(args.tells), "r"(1u)
                         : "memory");
        }
        return;
    }
    if (threadIdx.x == 0) wait_until(args.told, 1);
    __syncthreads();
}

// The rest of it. On return lane r of warp i has row r's product in group i.
template <typename Type, uint N, bool kDeep>
static __device__ __forceinline__ float r32_rows(const MuserProductArgs& args,
                                                 const MuserProductPart& part, uint column,
                                                 const uchar* const (&weights)[N],
                                                 const R32Shared& shared) {
    const uint lane = threadIdx.x & 31u;
    const uint warp = threadIdx.x >> 5;
    const uint warps = blockDim.x >> 5;
    const uint nb = args.blocks;
    const uint n = MUSER_BLOCK * nb;
    const size_t bytes = r32_group_bytes<Type>();
    const uint64_t policy = weights_policy();
    const bool two = kDeep && args.stages > 1;
    uint b = warp;
    wait_for_input(args);
    const uchar* form = reinterpret_cast<const uchar*>(part.form) +
                        column * static_cast<size_t>(MUSER_BLOCK_FORM_STRIDE(size_t(n)));
    R32Load load;
    R32Activations* x = shared.x;
    char* first_place = shared.places;
    if (N == 1) {
        if (b < nb) r32_fetch_activations(x, form, n, b, lane);
        if (two) commit_copies();
        if (two && b + warps < nb) r32_fetch_activations(x + 1, form, n, b + warps, lane);
    } else if (b < nb) {
        load = r32_load_activations(form, n, b, lane);
    }
    commit_copies();

    float acc = 0.0f;
    for (uint first = 0; first < nb; first += args.span) {
        const uint end = min(first + args.span, nb);
        for (; b < end; b += warps) {
            const uint next = b + (two ? 2 * warps : warps);
            const bool more = next < nb;
            if (N > 1) {
                r32_store_activations(x, load, lane);
                if (more) load = r32_load_activations(form, n, next, lane);
            }
            float2* pairs = shared.pairs + 32 * Type::kPairs * (b - first);
#pragma unroll
            for (uint i = 0; i < N; ++i) {
                uint4* place = reinterpret_cast<uint4*>(first_place + i * args.place_bytes);
                if (two) {
                    // At first also for the second weights: those were asked for before x.
                    wait_for_all_but<1>();
                } else {
                    wait_for_all_but<N - 1>();
                }
                __syncwarp();
                R32Activations* now = x;
                const auto release = [&] {
                    __syncwarp();
                    if (N == 1) x = x == shared.x ? shared.x + 1 : shared.x;
                    if (more) {
                        r32_fetch<Type>(place, weights[i] + next * bytes, lane, policy);
                        if (N == 1) r32_fetch_activations(two ? now : x, form, n, next, lane);
                    }
                    commit_copies();
                };
                Type::step(place, *now, pairs + 32 * Type::kPairs * args.span * i, lane, release);
            }
            if (two) {
                first_place =
                    first_place == shared.places ? shared.places + args.place_bytes : shared.places;
            }
        }
        __syncthreads();
        if (warp < N) {
            acc = r32_chain(shared.pairs + 32 * Type::kPairs * warp * args.span + lane,
                            Type::kPairs * (end - first), acc);
        }
        if (end < nb) __syncthreads();
    }
    return acc;
}

template <typename Type, uint N, bool kDeep>
static __device__ __forceinline__ void r32_product(const MuserProductArgs& args,
                                                   const MuserProductPart& part, uint block,
                                                   const R32Shared& shared) {
    const size_t bytes = args.blocks * r32_group_bytes<Type>();
    const uint last = (part.rows - 1) / MUSER_R32_ROWS;
    const uchar* weights[N];
#pragma unroll
    for (uint i = 0; i < N; ++i) {
        // An odd last group is worked on twice.
        weights[i] = reinterpret_cast<const uchar*>(part.weight) + min(N * block + i, last) * bytes;
    }
    r32_ask_first<Type, N, kDeep>(args, weights, shared);
    r32_prefetch_rows(args);
    const float acc = r32_rows<Type, N, kDeep>(args, part, blockIdx.y, weights, shared);
    const uint row = N * MUSER_R32_ROWS * block + threadIdx.x;
    if (threadIdx.x < N * MUSER_R32_ROWS && row < part.rows) {
        reinterpret_cast<float*>(part.y)[static_cast<size_t>(blockIdx.y) * part.rows + row] = acc;
    }
    // Attention counts the warps that have written their rows.
    if (args.done != 0 && threadIdx.x < N * MUSER_R32_ROWS) {
        __syncwarp();
        const uint group = N * blockIdx.x + threadIdx.x / MUSER_R32_ROWS;
        if ((threadIdx.x & 31u) == 0) add_and_tell(args.done + 4 * (group >> args.done_shift), 1);
    }
    if (args.told != 0) wait_for_previous();  // what is behind this one is behind that one, too
}

// The block of the last of the eight groups that make 256 results writes their block form.
template <typename Type>
static __device__ __forceinline__ void r32_silu(const MuserProductArgs& args,
                                                const MuserProductPart& part, uint group,
                                                const R32Shared& shared) {
    const uint column = blockIdx.y;
    const uint lane = threadIdx.x & 31u;
    const size_t bytes = args.blocks * r32_group_bytes<Type>();
    const uchar* const weights[2] = {reinterpret_cast<const uchar*>(part.weight) + group * bytes,
                                     reinterpret_cast<const uchar*>(part.weight2) + group * bytes};
    r32_ask_first<Type, 2, false>(args, weights, shared);
    const float acc = r32_rows<Type, 2, false>(args, part, column, weights, shared);
    // Warp 1 has the up products. All activations are done with: the chains came after a barrier.
    float* ups = reinterpret_cast<float*>(shared.x - (threadIdx.x >> 5));
    if (threadIdx.x >= 32 && threadIdx.x < 64) ups[lane] = acc;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    const uint row = MUSER_R32_ROWS * group + lane;
    float* y = reinterpret_cast<float*>(part.y) + static_cast<size_t>(column) * part.rows;
    if (row < part.rows) y[row] = muser_silu_mul(acc, ups[lane]);
    if (part.y_blocks == 0) return;

    const uint block = group / 8;
    uint* counter = reinterpret_cast<uint*>(part.counters) +
                    static_cast<size_t>(column) * part.y_blocks + block;
    __threadfence();
    __syncwarp();
    uint arrived = 0;
    if (lane == 0) arrived = atomicAdd(counter, 1u);
    arrived = __shfl_sync(0xffffffffu, arrived, 0);
    if (arrived != 7) return;
    __threadfence();
    if (lane == 0) *counter = 0;
    const float4* from = reinterpret_cast<const float4*>(y + MUSER_BLOCK * block + 8 * lane);
    uchar* form =
        reinterpret_cast<uchar*>(part.y_form) +
        column * static_cast<size_t>(MUSER_BLOCK_FORM_STRIDE(static_cast<size_t>(part.rows)));
    write_block(form, part.rows, block, as_eight(__ldcg(from), __ldcg(from + 1)), lane);
}
