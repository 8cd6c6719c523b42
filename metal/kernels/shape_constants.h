// The numbers of launch_shapes.h that the kernels themselves rely on. Compiled as C++, MSL and
// CUDA.
#pragma once

// Quantised mat-vec: eight lanes take one row, 16 bytes of its packed quants each; two rows per
// such cluster share the activations a lane has loaded; so 8 rows per SIMD group.
#define MUSER_SHAPE_ROW_LANES 8
#define MUSER_SHAPE_CLUSTER_ROWS 2
#define MUSER_SHAPE_SIMD_ROWS (32 / MUSER_SHAPE_ROW_LANES * MUSER_SHAPE_CLUSTER_ROWS)
#define MUSER_SHAPE_MAT_VEC_THREADS 64
#define MUSER_SHAPE_MAT_VEC_ROWS (MUSER_SHAPE_MAT_VEC_THREADS / 32 * MUSER_SHAPE_SIMD_ROWS)

// The fused gate and up product owns whole blocks of 256 results, which it then quantises.
#define MUSER_SHAPE_SILU_ROWS 256
#define MUSER_SHAPE_MAT_VEC_SILU_THREADS (MUSER_SHAPE_SILU_ROWS / MUSER_SHAPE_SIMD_ROWS * 32)

// Float mat-vec: lane t is partial t of the contract; four rows per SIMD group share the vector.
#define MUSER_SHAPE_FLOAT_SIMD_ROWS 4
#define MUSER_SHAPE_FLOAT_THREADS 64
#define MUSER_SHAPE_FLOAT_ROWS (MUSER_SHAPE_FLOAT_THREADS / 32 * MUSER_SHAPE_FLOAT_SIMD_ROWS)

// Attention: one threadgroup per chunk of 64 keys and query head (gqa: and KV head).
#define MUSER_SHAPE_ATTEND_THREADS 128
#define MUSER_SHAPE_ATTEND_GQA_THREADS 256
#define MUSER_SHAPE_GQA_MAX_QUERIES 32  // query heads per KV head; bounds the scores array

// Staging: one SIMD group per row.
#define MUSER_SHAPE_STAGE_ROWS 8

// Gate and SwiGLU: one SIMD group per block of 256.
#define MUSER_SHAPE_POINTWISE_ELEMENTS 512
