// Decode attention where head_dim is 128 and planes are f16 (docs/numerics.md §4): what
// attend_chunks_gqa_f16, attend_combine_gate_b16 and qk_norm_rope_store_f16 do, with more blocks,
// loads that do not wait for each other, and values kept in registers.
#include "../attention.h"
#include "../head_norm.h"
#include "grid.cuh"

#define MUSER_D 128      // head_dim
#define MUSER_QUERIES 4  // query heads of a block
#define MUSER_MOST_CHUNKS 512
#define MUSER_ROWS_AHEAD 32  // partial rows that a thread of the combination has on their way

static __device__ __forceinline__ Eight halves_to_floats(uint4 packed) {
    const uint words[4] = {packed.x, packed.y, packed.z, packed.w};
    Eight out;
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        out.v[2 * i] = MUSER_HALF_BITS_FLOAT(words[i] & 0xffffu);
        out.v[2 * i + 1] = MUSER_HALF_BITS_FLOAT(words[i] >> 16);
    }
    return out;
}

// Grid: chunks (a bucket's), KV heads, quarters of a KV head's queries. A warp holds eight keys in
// registers and meets four query heads with them; the values are on their way to shared memory.
// Three blocks to a multiprocessor: a window of 2,048 is one wave on 132 of them.
extern "C" __global__ void __launch_bounds__(256, 3)
    muser_attend_128_f16(const AttendArgs args, const StepValues* step, const float* q,
                         const ushort* keys, const ushort* values, float* partials) {
    __shared__ uint4 value_rows[MUSER_CHUNK * MUSER_D / 8];
    __shared__ float4 queries[MUSER_QUERIES * MUSER_D / 4];
    __shared__ float scores[MUSER_QUERIES * MUSER_CHUNK];
    muser_enter();
    const uint tid = threadIdx.x;
    const uint lane = tid & 31u;
    const uint simd = tid >> 5;
    const KvView* view = kv_view(step, args.view);
    if (blockIdx.x >= view->chunks) return;
    const Chunk chunk = chunk_of(view, blockIdx.x);
    const uint kv_head = blockIdx.y;
    const uint width = args.kv_heads * MUSER_D;
    const uint first_head = kv_head * (args.heads / args.kv_heads) + MUSER_QUERIES * blockIdx.z;

    const uint slot = 8 * simd + lane / 4;
    const uint quarter = lane % 4;
    const bool here = slot >= chunk.first && slot < chunk.end;
    const size_t row =
        here ? slot_element(view, chunk, slot, args.capacity, width, kv_head, MUSER_D) : 0;
    uint4 key[4];
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        key[i] = here ? *reinterpret_cast<const uint4*>(keys + row + 32 * i + 8 * quarter)
                      : make_uint4(0, 0, 0, 0);
        if (here) {
            copy_16_async(&value_rows[slot * (MUSER_D / 8) + 4 * i + quarter],
                          values + row + 32 * i + 8 * quarter);
        }
    }
    if (tid < MUSER_QUERIES * MUSER_D / 4) {
        queries[tid] = reinterpret_cast<const float4*>(q + first_head * MUSER_D)[tid];
    }
    __syncthreads();
#pragma unroll
    for (uint h = 0; h < MUSER_QUERIES; ++h) {
        Eight part = no_partials();
#pragma unroll
        for (uint i = 0; i < 4; ++i) {
            const float4 a = queries[h * (MUSER_D / 4) + 8 * i + 2 * quarter];
            const float4 b = queries[h * (MUSER_D / 4) + 8 * i + 2 * quarter + 1];
            Eight x;
            x.v[0] = a.x;
            x.v[1] = a.y;
            x.v[2] = a.z;
            x.v[3] = a.w;
            x.v[4] = b.x;
            x.v[5] = b.y;
            x.v[6] = b.z;
            x.v[7] = b.w;
            part = add_products(part, x, halves_to_floats(key[i]));
        }
        const float score = score_tree(part) * args.scale;
        if (quarter == 0) scores[MUSER_CHUNK * h + slot] = score;
    }
    wait_for_copies();
    __syncthreads();

    float* partial =
        partials + (static_cast<size_t>(blockIdx.x) * args.heads + first_head) * (2 + MUSER_D);
    if (simd < MUSER_QUERIES) {
        softmax_chunk(scores + MUSER_CHUNK * simd, chunk, partial + simd * (2 + MUSER_D), lane);
    }
    __syncthreads();

    // Two dims of one head per thread.
    const uint h = tid / 64;
    const uint pair = tid % 64;
    const uint* rows = reinterpret_cast<const uint*>(value_rows) + pair;
    float first = 0.0f;
    float second = 0.0f;
#pragma unroll 8
    for (uint k = chunk.first; k < chunk.end; ++k) {
        const float p = scores[MUSER_CHUNK * h + k];
        const uint v = rows[k * (MUSER_D / 2)];
        first = MUSER_FMA(p, MUSER_HALF_BITS_FLOAT(v & 0xffffu), first);
        second = MUSER_FMA(p, MUSER_HALF_BITS_FLOAT(v >> 16), second);
    }
    float* out = partial + h * (2 + MUSER_D) + 2;
    out[2 * pair] = first;
    out[2 * pair + 1] = second;
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
        float c[4];
        float s[4];
        if (args.rope != 0) {
#pragma unroll
            for (uint i = 0; i < 4; ++i) {
                c[i] = step->rope_cos[(lane + 32 * i) / 2];
                s[i] = step->rope_sin[(lane + 32 * i) / 2];
            }
        }
        float sum = 0.0f;
#pragma unroll
        for (uint i = 0; i < 4; ++i) sum = MUSER_FMA(x[i], x[i], sum);
        const float scale = norm_scale(simd_tree_sum(sum), MUSER_D, args.eps);
#pragma unroll
        for (uint i = 0; i < 4; ++i) {
            const float mine = (x[i] * scale) * weight[i];
            const float other = simd_shuffle_xor(mine, static_cast<ushort>(1));
            x[i] = mine;
            if (args.rope != 0) {
                x[i] = (lane & 1) == 0 ? MUSER_FMA(mine, c[i], -(other * s[i]))
                                       : MUSER_FMA(other, s[i], mine * c[i]);
            }
        }
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
