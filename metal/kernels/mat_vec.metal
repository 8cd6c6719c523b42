#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// Quantised matrix times block-form vector (docs/numerics.md §2), ggml's rows as they lie in the
// file.
//
// Eight lanes take one row and read 16 bytes each, so a cluster reads a superblock's quants at
// once; two rows per cluster share the activations in registers. A SIMD group has eight rows.
#include "quant_blocks.h"

template <typename Type>
static inline void mul_mv(constant MatVecArgs& args, device const uchar* weight,
                          device const uchar* forms, device float* y, uint3 group, uint lane,
                          uint simd) {
    const uint first_row = group.x * MUSER_SHAPE_MAT_VEC_ROWS + simd * MUSER_SHAPE_SIMD_ROWS;
    if (first_row >= args.rows) return;
    const uint part = lane % MUSER_SHAPE_ROW_LANES;
    const uint row0 = first_row + lane / MUSER_SHAPE_ROW_LANES * MUSER_SHAPE_CLUSTER_ROWS;
    const uint row1 = row0 + 1;
    const uint last = args.rows - 1;
    const uint blocks = args.cols / MUSER_BLOCK;
    const size_t row_bytes = static_cast<size_t>(blocks) * Type::kBytes;
    // A cluster beyond the end works on the last row and keeps its result to itself.
    device const uchar* w0 = weight + row_bytes * min(row0, last);
    device const uchar* w1 = weight + row_bytes * min(row1, last);
    device const uchar* form =
        forms + group.y * MUSER_BLOCK_FORM_STRIDE(static_cast<size_t>(args.cols));

    float acc0 = 0.0f;
    float acc1 = 0.0f;
    for (uint b = 0; b < blocks; ++b) {
        const Activations x = load_activations<Type>(form, args.cols, b, part);
        acc0 = Type::step(acc0, w0, part, lane, x);
        acc1 = Type::step(acc1, w1, part, lane, x);
        w0 += Type::kBytes;
        w1 += Type::kBytes;
    }
    device float* out = y + static_cast<size_t>(group.y) * args.rows;
    if (part == 0 && row0 < args.rows) out[row0] = acc0;
    if (part == 0 && row1 < args.rows) out[row1] = acc1;
}

#define MUSER_MUL_MV(name, Type)                                                                \
    kernel void name(                                                                           \
        constant MatVecArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],      \
        device const uchar* forms [[buffer(2)]], device float* y [[buffer(3)]], MUSER_THREAD) { \
        mul_mv<Type>(args, weight, forms, y, group, lane, simd);                                \
    }                                                                                           \
    MUSER_KERNEL(name, MatVecArgs, 3)

MUSER_MUL_MV(mul_mv_q4_K_b16, Q4K)
MUSER_MUL_MV(mul_mv_q5_K_b16, Q5K)
MUSER_MUL_MV(mul_mv_q6_K_b16, Q6K)
MUSER_MUL_MV(mul_mv_q8_0_b16, Q80)
