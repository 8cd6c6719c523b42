// The kernel catalogue: every kernel's name, argument struct and buffers, in one header that the
// host (C++), Metal (MSL), NVRTC (CUDA) and the emulator compile alike.
//
// Rules: the argument struct is at index 0, buffers follow from 1 in the order listed. Kernel names
// encode types: <T> is q4_K, q5_K, q6_K or q8_0 (block quantised, meets the 16-bit block form),
// <F> is f32, f16 or bf16 (meets the f32 vector), <P> is the KV plane type, f16 or f32.
// "r", "w", "rw" say what a kernel does to a buffer; [rows] means only rows named by the step
// values are touched. The arithmetic is docs/numerics.md; cpp/contract/ defines each kernel.
#pragma once

#if !defined(__METAL_VERSION__) && !defined(__CUDACC_RTC__)
#include <cstddef>
#include <cstdint>
#endif

#define MUSER_MAX_HEAD_DIM 256
#define MUSER_CHUNK 64         // keys per softmax chunk, by absolute position (numerics 4)
#define MUSER_BLOCK 256        // elements per activation block (numerics 1)
#define MUSER_HEAD_GROUP 1024  // logits per softcap or argmax threadgroup

// Which of the three views of StepValues a kernel looks through.
#define MUSER_VIEW_RING 0    // sliding-window ring, after this token's row is stored
#define MUSER_VIEW_PLANE 1   // global plane
#define MUSER_VIEW_SHADOW 2  // staged copy of a wrapped ring, in position order

// ---- step buffer -------------------------------------------------------------------------------
// Everything that changes from token to token lives here and nowhere else, so that two recordings
// with the same schedule, ring phase, length bucket and slot are the same bytes.

// The keys one query sees: `count` rows from `first_row`, modulo the plane's capacity.
struct KvView {
    uint32_t first_position;  // absolute position of the oldest visible key
    uint32_t first_row;       // its physical row
    uint32_t count;           // visible keys, this token's own included
    uint32_t older;           // count - 1: visible keys without this token's own
    uint32_t write_row;       // physical row of this token
    uint32_t chunks;          // 64-key chunks by absolute position that hold a visible key
};

struct StepValues {
    uint32_t token;        // id fed at this step
    uint32_t position;     // 0-based
    uint32_t journal_row;  // undo-journal row that keeps the overwritten ring row
    uint32_t overwrite;    // 1 when write_row of the ring holds an older position's row, else 0
    struct KvView ring;
    struct KvView plane;
    struct KvView shadow;
    uint32_t device_token;  // greedy lane: argmax_final_f32 of the step before writes it
    uint32_t chained;       // 1: embed reads device_token instead of token
    uint32_t reserved[8];
    float rope_cos[MUSER_MAX_HEAD_DIM / 2];
    float rope_sin[MUSER_MAX_HEAD_DIM / 2];
    uint32_t padding[32];  // a slot is a multiple of 256 bytes
};
#define MUSER_STEP_BYTES 1280

// ---- argument structs --------------------------------------------------------------------------

// embed_<T>, embed_<F>: 1 step r, 2 table r[rows], 3 hidden f32[hidden] w
struct EmbedArgs {
    uint32_t hidden;
    uint32_t vocab;
    uint64_t row_bytes;
};

// rms_norm_f32 (no weight):               1 x r, 2 y f32[n] w
// rms_norm_mul_b16, rms_norm_mul_4sg_b16: 1 x r, 2 weight r, 3 y f32[n] w, 4 block form w
// rms_norm_add_f32:                       1 x r, 2 weight r, 3 residual f32[n] rw
struct NormArgs {
    uint32_t n;
    uint32_t blocks;  // n / 256, or 0: no block form is written
    float eps;
};

// rms_norm_add_norm_b16, rms_norm_add_norm_4sg_b16 (one norm boundary in one kernel):
//   1 x r, 2 post weight r, 3 residual f32[n] rw, 4 next weight r, 5 y f32[n] w, 6 block form w
struct DualNormArgs {
    uint32_t n;
    uint32_t blocks;
    float post_eps;
    float eps;
};

// head_norm_f32: 1 weight f32[head_dim] r, 2 x f32[heads * head_dim] rw
struct HeadNormArgs {
    uint32_t heads;
    uint32_t head_dim;
    float eps;
};

// rope_f32: 1 step r, 2 x f32[heads * head_dim] rw
struct RopeArgs {
    uint32_t heads;
    uint32_t head_dim;
};

// kv_store_<P>: 1 step r, 2 k f32[width] r, 3 v f32[width] r, 4 K w[rows], 5 V w[rows],
//   6 journal K w[rows], 7 journal V w[rows]. With journal != 0 and step.overwrite the row about
//   to be replaced is read (4, 5 are then rw) and kept in the journal first.
struct KvStoreArgs {
    uint32_t width;  // kv_heads * head_dim
    uint32_t view;
    uint32_t journal;
};

// swa_stage_<P>: 1 step r, 2 k r, 3 v r, 4 ring K r[rows], 5 ring V r[rows], 6 shadow K w[rows],
//   7 shadow V w[rows]
struct SwaStageArgs {
    uint32_t width;
    uint32_t capacity;  // rows of the ring
};

// attend_chunks_<P>, attend_chunks_gqa_<P>: 1 step r, 2 q f32[heads * head_dim] r, 3 K r[rows],
//   4 V r[rows], 5 partials f32[chunks][heads][2 + head_dim] w[rows]: max, sum, then o
// attend_combine_f32: 1 step r, 2 partials r[rows], 3 attention f32[heads * head_dim] w
// attend_combine_gate_b16: 1 step r, 2 partials r[rows], 3 gate r, 4 attention w, 5 block form w
struct AttendArgs {
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t view;
    uint32_t capacity;  // rows of K and V, for the ring's modulo
    uint32_t blocks;    // attend_combine_gate_b16 only
    float scale;        // f32(1 / sqrt(head_dim))
};

// qk_norm_rope_store_<P>: 1 step r, 2 q weight r, 3 k weight r, 4 q rw, 5 k r, 6 v r, 7 K w[rows],
//   8 V w[rows], 9 journal K w[rows], 10 journal V w[rows]
struct QkStoreArgs {
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t view;
    uint32_t journal;
    uint32_t rope;  // 0 on global layers
    float eps;
};

// mul_mv_<T>_b16<layout>: 1 weight r, 2 block form r, 3 y f32[rows] w
// mul_mv_<F>_f32<layout>: 1 weight r, 2 x f32[cols] r, 3 y f32[rows] w
// mul_mv_silu_<T>_b16<layout>: 1 gate weight r, 2 up weight r, 3 block form r, 4 y f32[rows] w,
//   5 block form of y w
// With columns > 1 the vectors and results follow each other: column c's block form is at
// c * MUSER_BLOCK_FORM_STRIDE(cols), its result at c * rows.
struct MatVecArgs {
    uint32_t rows;
    uint32_t cols;
    uint32_t columns;
    uint32_t blocks;  // mul_mv_silu only: rows / 256, or 0
};

// gate_b16:     1 gate r, 2 attention f32[n] rw, 3 block form w
// silu_mul_b16: 1 gate r, 2 up r, 3 y f32[n] w, 4 block form w
// copy_row_b16: 1 x r, 2 block form r, 3 x copy w, 4 block form copy w
// argmax_groups_f32: 1 logits f32[n] r, 2 best {f32 value, u32 id}[groups] w
// argmax_final_f32:  1 best r, 2 token u32[1] w (n is the number of groups)
struct VectorArgs {
    uint32_t n;
    uint32_t blocks;
};

// softcap_f32: 1 logits f32[n] rw, 2 flags u32[groups] w: 1 where a bare dot was not finite
struct SoftcapArgs {
    uint32_t n;
    float logit_scale;
    float cap;
};

// probe_u32: 1 rows u32[count][4] r, 2 results u32[count] w
struct ProbeArgs {
    uint32_t count;
};

// ---- block form of an f32[n] vector (n a multiple of 256): four sections in one buffer ----------
//   hi    int8[n]           at 0
//   lo    int8[n]           at n
//   sums  int32[n / 16]     at 2n          sums of 16 consecutive q
//   s     f32[n / 256]      at 2n + n/4
#define MUSER_BLOCK_FORM_BYTES(n) (static_cast<uint64_t>(n) * 2 + (n) / 4 + (n) / 64)
// From one vector's block form to the next: 16-byte reads stay aligned.
#define MUSER_BLOCK_FORM_STRIDE(n) ((MUSER_BLOCK_FORM_BYTES(n) + 15) / 16 * 16)
#define MUSER_BLOCK_LO(n) (n)
#define MUSER_BLOCK_SUMS(n) (2 * (n))
#define MUSER_BLOCK_SCALES(n) (2 * (n) + (n) / 4)

#define MUSER_ASSERT_ARGS(T, bytes) static_assert(sizeof(struct T) == bytes, #T " has another size")
MUSER_ASSERT_ARGS(KvView, 24);
MUSER_ASSERT_ARGS(StepValues, MUSER_STEP_BYTES);
MUSER_ASSERT_ARGS(EmbedArgs, 16);
MUSER_ASSERT_ARGS(NormArgs, 12);
MUSER_ASSERT_ARGS(DualNormArgs, 16);
MUSER_ASSERT_ARGS(HeadNormArgs, 12);
MUSER_ASSERT_ARGS(RopeArgs, 8);
MUSER_ASSERT_ARGS(KvStoreArgs, 12);
MUSER_ASSERT_ARGS(SwaStageArgs, 8);
MUSER_ASSERT_ARGS(AttendArgs, 28);
MUSER_ASSERT_ARGS(QkStoreArgs, 28);
MUSER_ASSERT_ARGS(MatVecArgs, 16);
MUSER_ASSERT_ARGS(VectorArgs, 8);
MUSER_ASSERT_ARGS(SoftcapArgs, 12);
MUSER_ASSERT_ARGS(ProbeArgs, 4);
#if defined(__CUDACC_RTC__)  // no offsetof there, but what its front end makes one from
#define MUSER_OFFSET_OF(T, field) __INTADDR__(&((static_cast<struct T*>(nullptr))->field))
#else
#define MUSER_OFFSET_OF(T, field) __builtin_offsetof(struct T, field)
#endif
#define MUSER_ASSERT_OFFSET(T, field, bytes) \
    static_assert(MUSER_OFFSET_OF(T, field) == bytes, #T "." #field " moved")
MUSER_ASSERT_OFFSET(StepValues, ring, 16);
MUSER_ASSERT_OFFSET(StepValues, plane, 40);
MUSER_ASSERT_OFFSET(StepValues, shadow, 64);
MUSER_ASSERT_OFFSET(StepValues, device_token, 88);
MUSER_ASSERT_OFFSET(StepValues, rope_cos, 128);
MUSER_ASSERT_OFFSET(StepValues, rope_sin, 640);
MUSER_ASSERT_OFFSET(EmbedArgs, row_bytes, 8);
