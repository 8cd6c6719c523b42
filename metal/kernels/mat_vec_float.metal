#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// Float matrix times f32 vector (docs/numerics.md §2): lane t is partial t, k = t, t + 32, ...
// Four rows per SIMD group share what a lane has read of the vector.
#include "float_weights.h"

template <typename Weight>
static inline void mul_mv_float(constant MatVecArgs& args,
                                device const typename Weight::Stored* weight,
                                device const float* vectors, device float* y, uint3 group,
                                uint lane, uint simd) {
    const uint first_row = group.x * MUSER_SHAPE_FLOAT_ROWS + simd * MUSER_SHAPE_FLOAT_SIMD_ROWS;
    if (first_row >= args.rows) return;
    const uint last = args.rows - 1;
    device const float* x = vectors + static_cast<size_t>(group.y) * args.cols;
    device const typename Weight::Stored* rows[MUSER_SHAPE_FLOAT_SIMD_ROWS];
    float sums[MUSER_SHAPE_FLOAT_SIMD_ROWS];
    for (uint r = 0; r < MUSER_SHAPE_FLOAT_SIMD_ROWS; ++r) {
        rows[r] = weight + static_cast<size_t>(min(first_row + r, last)) * args.cols;
        sums[r] = 0.0f;
    }
    for (uint k = lane; k < args.cols; k += 32) {
        const float value = x[k];
        for (uint r = 0; r < MUSER_SHAPE_FLOAT_SIMD_ROWS; ++r) {
            sums[r] = MUSER_FMA(Weight::load(rows[r][k]), value, sums[r]);
        }
    }
    device float* out = y + static_cast<size_t>(group.y) * args.rows;
    for (uint r = 0; r < MUSER_SHAPE_FLOAT_SIMD_ROWS; ++r) {
        const float total = simd_tree_sum(sums[r]);
        if (lane == r && first_row + r < args.rows) out[first_row + r] = total;
    }
}

#define MUSER_MUL_MV_FLOAT(name, Weight)                                                 \
    kernel void name(constant MatVecArgs& args [[buffer(0)]],                            \
                     device const Weight::Stored* weight [[buffer(1)]],                  \
                     device const float* x [[buffer(2)]], device float* y [[buffer(3)]], \
                     MUSER_THREAD) {                                                     \
        mul_mv_float<Weight>(args, weight, x, y, group, lane, simd);                     \
    }                                                                                    \
    MUSER_KERNEL(name, MatVecArgs, 3)

MUSER_MUL_MV_FLOAT(mul_mv_f32_f32, WeightF32)
MUSER_MUL_MV_FLOAT(mul_mv_f16_f32, WeightF16)
MUSER_MUL_MV_FLOAT(mul_mv_bf16_f32, WeightBF16)
