// Arguments of the kernels that the cuda device has beside the catalogue; shared by its host code
// and NVRTC. Addresses are plain 64-bit numbers on the host.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cstdint>
#endif

// Rows of a group that lie interleaved: one lane per row.
#define MUSER_R32_ROWS 32
// Most warps of a product's block with one group and with two; bounds its registers, two blocks to
// a multiprocessor.
#define MUSER_R32_WARPS_ONE 13
#define MUSER_R32_WARPS_TWO 9
#define MUSER_R32_PARTS 8

enum MuserR32Type : uint32_t {
    MUSER_R32_Q4_K = 0,
    MUSER_R32_Q5_K = 1,
    MUSER_R32_Q6_K = 2,
    MUSER_R32_Q8_0 = 3,
    MUSER_R32_TYPES = 4
};

// One matrix of a launch. Several products of one epoch share a launch: their groups of rows follow
// each other in the grid, one or two to a block (silu: one of each matrix).
struct MuserProductPart {
    uint64_t weight;
    uint64_t weight2;  // silu: the up matrix
    uint64_t form;
    uint64_t y;
    uint64_t y_form;    // silu: block form of y
    uint64_t counters;  // silu: one u32 per 256 rows, zero between launches
    uint32_t rows;
    uint32_t type;
    uint32_t first_block;  // in the grid
    uint32_t y_blocks;     // silu: blocks of y's form, or 0
};

struct MuserProductArgs {
    struct MuserProductPart part[MUSER_R32_PARTS];
    uint32_t parts;
    uint32_t blocks;       // superblocks of a row, the same in all parts
    uint32_t span;         // superblocks between two combinations; a multiple of the warps
    uint32_t stage_bytes;  // shared memory of one warp's weights: one stage per group
    uint32_t padding[2];
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
