// Arguments of the kernels that the cuda device has beside the catalogue; shared by its host code
// and NVRTC. Addresses are plain 64-bit numbers on the host.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cstdint>
#endif

// Rows of a group that lie interleaved.
#define MUSER_R32_ROWS 32
// Most warps of a product's block: with one group of rows; with one group where a warp may have two
// superblocks on their way, if they fit (short rows, and long ones); with two groups. Two blocks
// share a multiprocessor, of the small ones five; that bounds their registers.
#define MUSER_R32_WARPS_ONE 13
#define MUSER_R32_WARPS_DEEP 10
#define MUSER_R32_WARPS_TWO 9
#define MUSER_R32_WARPS_SMALL 4
#define MUSER_R32_SMALL_BLOCKS 5
#define MUSER_R32_ACTIVATION_BYTES 592
#define MUSER_R32_PARTS 8

enum MuserR32Type : uint32_t {
    MUSER_R32_Q4_K = 0,
    MUSER_R32_Q5_K = 1,
    MUSER_R32_Q6_K = 2,
    MUSER_R32_Q8_0 = 3,
    MUSER_R32_TYPES = 4
};

// One matrix of a launch. Several products of one epoch share a launch: their groups of rows follow
// each other.
struct MuserProductPart {
    uint64_t weight;
    uint64_t weight2;  // silu: the up matrix
    uint64_t form;
    uint64_t y;
    uint64_t y_form;    // silu: block form of y
    uint64_t counters;  // silu: one u32 per 256 rows, zero between launches
    uint32_t rows;
    uint32_t type;
    uint32_t first_group;  // among the launch's groups of rows
    uint32_t y_blocks;     // silu: blocks of y's form, or 0
};

struct MuserProductArgs {
    struct MuserProductPart part[MUSER_R32_PARTS];
    // u32, zero between launches, or address 0. To the first, or of several to number (group >>
    // done_shift), each group of rows adds 1 when it is there. Where the second is `tells`, it
    // becomes 1 once the activations are there; where it is `told`, the kernel begins at that,
    // rather than when the one in front is done.
    uint64_t done;
    uint64_t tells, told;
    // Where attention follows: its rows of K and V, for the L2, and how many bytes of each; or 0.
    uint64_t rows[2];
    uint64_t row_bytes;
    uint32_t parts;
    uint32_t blocks;       // superblocks of a row, the same in all parts
    uint32_t place_bytes;  // of shared memory, for a superblock of a group
    uint32_t span;         // superblocks between two combinations, a multiple of the warps
    uint32_t stages;       // superblocks of a group that a warp has on their way, with one group
    uint32_t paced;        // in how many parts the first weights are asked for
    uint32_t done_shift;
    uint32_t padding;
};

// What the device's own forms of attention take: head_dim, most query heads of a block, most chunks
// of a head; and the warps of a block of the launch below.
#define MUSER_ATTEND_HEAD_DIM 128
#define MUSER_ATTEND_QUERIES 8
#define MUSER_ATTEND_MOST_CHUNKS 512
#define MUSER_ATTEND_WARPS (MUSER_ATTEND_QUERIES + 2)  // a head each, then the new rows of K and V

// Attention of a decode step in one launch: qk_norm_rope_store_f16, attend_chunks_gqa_f16 and
// attend_combine_gate_b16, whose arguments these are.
struct MuserAttentionArgs {
    uint64_t step;
    uint64_t q_weight, k_weight;
    uint64_t q, k, v;
    uint64_t plane_k, plane_v, journal_k, journal_v;
    uint64_t partials, gate, attention, form;
    uint64_t counters;  // u32 for each group of query heads, and one more; zero between launches
    uint64_t done;   // two u32, MuserProductArgs' `done`, which reaches `groups`, and `tells`; or 0
    uint64_t gates;  // the same of the gate's product: u32 for each 256 rows, which reach 8; or 0
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t view;
    uint32_t capacity;
    uint32_t journal;
    uint32_t rope;
    uint32_t blocks;  // of the form, or 0
    uint32_t groups;
    uint32_t early;  // rows of earlier steps were there before this recording began
    float eps;
    float scale;
    uint32_t padding;
};

// repack_r32: ggml rows to groups of 32 interleaved rows.
struct MuserRepackArgs {
    uint64_t rows_in;  // address of the first row to repack
    uint64_t out;      // address of its group
    uint32_t rows;     // how many there are; the last group is filled up with zeros
    uint32_t blocks;
    uint32_t type;
    uint32_t padding;
};
