#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// Gate and up products and SwiGLU in one kernel (docs/numerics.md §2, §6). A threadgroup owns 256
// results, that is one activation block, so that it can also write their block form.
#include "quant_blocks.h"

template <typename Type>
static inline void mul_mv_silu(constant MatVecArgs& args, device const uchar* gate,
                               device const uchar* up, device const uchar* forms, device float* y,
                               device uchar* y_forms, threadgroup float* results, uint3 group,
                               uint tid, uint lane, uint simd) {
    const uint part = lane % MUSER_SHAPE_ROW_LANES;
    const uint local0 =
        simd * MUSER_SHAPE_SIMD_ROWS + lane / MUSER_SHAPE_ROW_LANES * MUSER_SHAPE_CLUSTER_ROWS;
    const uint first_row = group.x * MUSER_SHAPE_SILU_ROWS;
    const uint last = args.rows - 1;
    const uint blocks = args.cols / MUSER_BLOCK;
    const size_t row_bytes = static_cast<size_t>(blocks) * Type::kBytes;
    const size_t at0 = row_bytes * min(first_row + local0, last);
    const size_t at1 = row_bytes * min(first_row + local0 + 1, last);
    device const uchar* g0 = gate + at0;
    device const uchar* g1 = gate + at1;
    device const uchar* u0 = up + at0;
    device const uchar* u1 = up + at1;
    device const uchar* form =
        forms + group.y * MUSER_BLOCK_FORM_STRIDE(static_cast<size_t>(args.cols));

    float gate0 = 0.0f;
    float gate1 = 0.0f;
    float up0 = 0.0f;
    float up1 = 0.0f;
    for (uint b = 0; b < blocks; ++b) {
        const Activations x = load_activations<Type>(form, args.cols, b, part);
        const size_t offset = static_cast<size_t>(b) * Type::kBytes;
        gate0 = Type::step(gate0, g0 + offset, part, lane, x);
        gate1 = Type::step(gate1, g1 + offset, part, lane, x);
        up0 = Type::step(up0, u0 + offset, part, lane, x);
        up1 = Type::step(up1, u1 + offset, part, lane, x);
    }
    if (part == 0) {
        results[local0] = muser_silu_mul(gate0, up0);
        results[local0 + 1] = muser_silu_mul(gate1, up1);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < MUSER_SHAPE_SILU_ROWS && first_row + tid < args.rows) {
        y[static_cast<size_t>(group.y) * args.rows + first_row + tid] = results[tid];
    }
    if (simd == 0 && args.blocks != 0) {
        Eight values;
        for (uint i = 0; i < 8; ++i) values.v[i] = results[8 * lane + i];
        device uchar* y_form =
            y_forms + group.y * MUSER_BLOCK_FORM_STRIDE(static_cast<size_t>(args.rows));
        write_block(y_form, args.rows, group.x, values, lane);
    }
}

#define MUSER_MUL_MV_SILU(name, Type)                                                          \
    [[max_total_threads_per_threadgroup(MUSER_SHAPE_MAT_VEC_SILU_THREADS)]] kernel void name(  \
        constant MatVecArgs& args [[buffer(0)]], device const uchar* gate [[buffer(1)]],       \
        device const uchar* up [[buffer(2)]], device const uchar* forms [[buffer(3)]],         \
        device float* y [[buffer(4)]], device uchar* y_forms [[buffer(5)]], MUSER_THREAD) {    \
        MUSER_THREADGROUP(float, results, MUSER_SHAPE_SILU_ROWS);                              \
        mul_mv_silu<Type>(args, gate, up, forms, y, y_forms, results, group, tid, lane, simd); \
    }                                                                                          \
    MUSER_WIDE_KERNEL(name, MatVecArgs, 5)

MUSER_MUL_MV_SILU(mul_mv_silu_q4_K_b16, Q4K)
MUSER_MUL_MV_SILU(mul_mv_silu_q5_K_b16, Q5K)
MUSER_MUL_MV_SILU(mul_mv_silu_q6_K_b16, Q6K)
MUSER_MUL_MV_SILU(mul_mv_silu_q8_0_b16, Q80)
