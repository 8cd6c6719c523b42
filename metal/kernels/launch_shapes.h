// Launch shapes: for every kernel of the catalogue (args.h) the threads of one threadgroup and how
// much of the work one threadgroup takes. Host only; the .metal files rely on the same numbers
// (shape_constants.h) and the emulator's tests compare the two.
//
// A launcher asks launch_shape(kernel, units, columns). What a unit is stands in the table: rows of
// a matrix, elements of a vector, heads. Surplus threadgroups and lanes return early, so a bucketed
// `units` (attention chunks) is a bound, not a count.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "metal/kernels/shape_constants.h"

namespace muser::kernels {

enum class Unit : uint8_t {
    whole,     // the kernel is one threadgroup; `units` is ignored
    rows,      // rows of the weight matrix
    elements,  // elements of the vector (n; width for kv_store; heads * head_dim for the combine)
    pairs,     // RoPE pairs, heads * head_dim / 2
    heads,     // head_norm: heads; qk_norm_rope_store: heads + 2 * kv_heads
    kv_rows,   // rows of the shadow (capacity)
    chunks,    // 64-key chunks, bucketed; columns = heads, or kv_heads for the gqa kernel
    probes,    // rows of the probe table
};

struct KernelShape {
    std::string_view name;
    uint32_t threads;    // per threadgroup; a multiple of 32
    uint32_t per_group;  // units one threadgroup takes
    Unit unit;
    std::string_view args;  // argument struct in args.h
    uint32_t buffers;       // bound from index 1
};

struct LaunchShape {
    uint32_t groups_x = 1, groups_y = 1, groups_z = 1;
    uint32_t threads = 1;
};

#define MUSER_MAT_VEC_SHAPES(T)                          \
    KernelShape{"mul_mv_" T "_b16",                      \
                MUSER_SHAPE_MAT_VEC_THREADS,             \
                MUSER_SHAPE_MAT_VEC_ROWS,                \
                Unit::rows,                              \
                "MatVecArgs",                            \
                3},                                      \
        KernelShape{"mul_mv_silu_" T "_b16",             \
                    MUSER_SHAPE_MAT_VEC_SILU_THREADS,    \
                    MUSER_SHAPE_SILU_ROWS,               \
                    Unit::rows,                          \
                    "MatVecArgs",                        \
                    5},                                  \
        KernelShape {                                    \
        "embed_" T, 1024, 0, Unit::whole, "EmbedArgs", 3 \
    }
#define MUSER_FLOAT_SHAPES(F)                                      \
    KernelShape{"mul_mv_" F "_f32",     MUSER_SHAPE_FLOAT_THREADS, \
                MUSER_SHAPE_FLOAT_ROWS, Unit::rows,                \
                "MatVecArgs",           3},                        \
        KernelShape {                                              \
        "embed_" F, 1024, 0, Unit::whole, "EmbedArgs", 3           \
    }
#define MUSER_PLANE_SHAPES(P)                                                                  \
    KernelShape{"kv_store_" P, 256, 256, Unit::elements, "KvStoreArgs", 7},                    \
        KernelShape{                                                                           \
            "swa_stage_" P, 256, MUSER_SHAPE_STAGE_ROWS, Unit::kv_rows, "SwaStageArgs", 7},    \
        KernelShape{                                                                           \
            "attend_chunks_" P, MUSER_SHAPE_ATTEND_THREADS, 1, Unit::chunks, "AttendArgs", 5}, \
        KernelShape{"attend_chunks_gqa_" P,                                                    \
                    MUSER_SHAPE_ATTEND_GQA_THREADS,                                            \
                    1,                                                                         \
                    Unit::chunks,                                                              \
                    "AttendArgs",                                                              \
                    5},                                                                        \
        KernelShape {                                                                          \
        "qk_norm_rope_store_" P, 128, 4, Unit::heads, "QkStoreArgs", 10                        \
    }

inline constexpr std::array kKernelShapes = {
    MUSER_MAT_VEC_SHAPES("q4_K"),
    MUSER_MAT_VEC_SHAPES("q5_K"),
    MUSER_MAT_VEC_SHAPES("q6_K"),
    MUSER_MAT_VEC_SHAPES("q8_0"),
    MUSER_FLOAT_SHAPES("f32"),
    MUSER_FLOAT_SHAPES("f16"),
    MUSER_FLOAT_SHAPES("bf16"),
    MUSER_PLANE_SHAPES("f16"),
    MUSER_PLANE_SHAPES("f32"),
    // The norms are one threadgroup: their reduction is over the whole vector, and 1,024 partials
    // are 1,024 threads.
    KernelShape{"rms_norm_f32", 1024, 0, Unit::whole, "NormArgs", 2},
    KernelShape{"rms_norm_mul_b16", 1024, 0, Unit::whole, "NormArgs", 4},
    KernelShape{"rms_norm_mul_4sg_b16", 1024, 0, Unit::whole, "NormArgs", 4},
    KernelShape{"rms_norm_add_f32", 1024, 0, Unit::whole, "NormArgs", 3},
    KernelShape{"rms_norm_add_norm_b16", 1024, 0, Unit::whole, "DualNormArgs", 6},
    KernelShape{"rms_norm_add_norm_4sg_b16", 1024, 0, Unit::whole, "DualNormArgs", 6},
    KernelShape{"head_norm_f32", 128, 4, Unit::heads, "HeadNormArgs", 2},
    KernelShape{"rope_f32", 256, 256, Unit::pairs, "RopeArgs", 2},
    KernelShape{"attend_combine_f32", 256, 256, Unit::elements, "AttendArgs", 3},
    KernelShape{"attend_combine_gate_b16", 256, 256, Unit::elements, "AttendArgs", 5},
    KernelShape{"gate_b16", 64, MUSER_SHAPE_POINTWISE_ELEMENTS, Unit::elements, "VectorArgs", 3},
    KernelShape{"silu_mul_b16", 64, MUSER_SHAPE_POINTWISE_ELEMENTS, Unit::elements, "VectorArgs",
                4},
    KernelShape{"copy_row_b16", 256, 1024, Unit::elements, "VectorArgs", 4},
    KernelShape{"softcap_f32", 256, 1024, Unit::elements, "SoftcapArgs", 2},
    KernelShape{"argmax_groups_f32", 256, 1024, Unit::elements, "VectorArgs", 2},
    KernelShape{"argmax_final_f32", 256, 0, Unit::whole, "VectorArgs", 2},
    KernelShape{"probe_u32", 32, 32, Unit::probes, "ProbeArgs", 2},
};
#undef MUSER_MAT_VEC_SHAPES
#undef MUSER_FLOAT_SHAPES
#undef MUSER_PLANE_SHAPES

// The entry of a kernel, nullptr for a name that is not in the catalogue. A repacked layout's
// suffix ("mul_mv_q4_K_b16_r16") is looked through: the shape is that of ggml's own rows.
constexpr const KernelShape* find_kernel_shape(std::string_view name) {
    for (const KernelShape& shape : kKernelShapes) {
        if (name == shape.name) return &shape;
    }
    const size_t at = name.rfind("_r");
    if (at == std::string_view::npos || at + 2 == name.size()) return nullptr;
    for (size_t i = at + 2; i < name.size(); ++i) {
        if (name[i] < '0' || name[i] > '9') return nullptr;
    }
    for (const KernelShape& shape : kKernelShapes) {
        if (name.substr(0, at) == shape.name) return &shape;
    }
    return nullptr;
}

// `columns` is the second grid dimension: vectors of a mat-vec, query or KV heads of attention.
constexpr LaunchShape launch_shape(const KernelShape& shape, uint64_t units, uint32_t columns = 1) {
    LaunchShape launch;
    launch.threads = shape.threads;
    if (shape.unit != Unit::whole) {
        launch.groups_x = static_cast<uint32_t>((units + shape.per_group - 1) / shape.per_group);
    }
    launch.groups_y = columns;
    return launch;
}

static_assert(find_kernel_shape("mul_mv_q4_K_b16_r16")->name == "mul_mv_q4_K_b16");
static_assert(find_kernel_shape("mul_mv_silu_q6_K_b16")->buffers == 5);
static_assert(find_kernel_shape("attend_chunks_gqa_f16")->unit == Unit::chunks);
static_assert(find_kernel_shape("rms_norm") == nullptr);

}  // namespace muser::kernels
