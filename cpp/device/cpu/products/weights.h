// ggml's quantised rows, one superblock at a time: unpacked to scaled 16-bit weights.
//
// scale * w fits 16 bits for every type, and the products with q fit 32 bits over 16 elements
// (4096 * 32639 * 16 < 2^31, the worst case, is Q6_K's), so a superblock's T is sixteen 32-bit sums
// added in 64 bits.
//
// Included by the translation units of single instruction sets: internal linkage only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/blocks.h"

namespace muser::device::cpu {
namespace {

using contract::BlockQ4_K;
using contract::BlockQ5_K;
using contract::BlockQ6_K;
using contract::BlockQ8_0;

struct ScaledSuperblock {
    int16_t w[256];  // scale * weight
    int16_t mins[8];
    uint16_t d, dmin;  // f16
};

// The 6-bit scales and mins of Q4_K and Q5_K.
static inline void unpack_scale_mins(const uint8_t packed[12], int16_t scales[8], int16_t mins[8]) {
    for (int j = 0; j < 4; ++j) {
        scales[j] = packed[j] & 63;
        mins[j] = packed[j + 4] & 63;
        scales[j + 4] = static_cast<int16_t>((packed[j + 8] & 15) | ((packed[j] >> 6) << 4));
        mins[j + 4] = static_cast<int16_t>((packed[j + 8] >> 4) | ((packed[j + 4] >> 6) << 4));
    }
}

static inline void unpack(const BlockQ4_K& block, ScaledSuperblock& out) {
    int16_t scales[8];
    unpack_scale_mins(block.scales, scales, out.mins);
    out.d = block.d;
    out.dmin = block.dmin;
    for (int c = 0; c < 4; ++c) {
        const uint8_t* qs = block.qs + 32 * c;
        int16_t* w = out.w + 64 * c;
        for (int l = 0; l < 32; ++l) {
            w[l] = static_cast<int16_t>(scales[2 * c] * (qs[l] & 15));
            w[32 + l] = static_cast<int16_t>(scales[2 * c + 1] * (qs[l] >> 4));
        }
    }
}

static inline void unpack(const BlockQ5_K& block, ScaledSuperblock& out) {
    int16_t scales[8];
    unpack_scale_mins(block.scales, scales, out.mins);
    out.d = block.d;
    out.dmin = block.dmin;
    for (int c = 0; c < 4; ++c) {
        const uint8_t* qs = block.qs + 32 * c;
        int16_t* w = out.w + 64 * c;
        for (int l = 0; l < 32; ++l) {
            const int low = (qs[l] & 15) | (((block.qh[l] >> (2 * c)) & 1) << 4);
            const int high = (qs[l] >> 4) | (((block.qh[l] >> (2 * c + 1)) & 1) << 4);
            w[l] = static_cast<int16_t>(scales[2 * c] * low);
            w[32 + l] = static_cast<int16_t>(scales[2 * c + 1] * high);
        }
    }
}

static inline void unpack(const BlockQ6_K& block, ScaledSuperblock& out) {
    out.d = block.d;
    out.dmin = 0;
    for (int half = 0; half < 2; ++half) {
        const uint8_t* ql = block.ql + 64 * half;
        const uint8_t* qh = block.qh + 32 * half;
        const int8_t* scales = block.scales + 8 * half;
        int16_t* w = out.w + 128 * half;
        for (int l = 0; l < 32; ++l) {
            const int q0 = (ql[l] & 15) | ((qh[l] & 3) << 4);
            const int q1 = (ql[32 + l] & 15) | (((qh[l] >> 2) & 3) << 4);
            const int q2 = (ql[l] >> 4) | (((qh[l] >> 4) & 3) << 4);
            const int q3 = (ql[32 + l] >> 4) | (((qh[l] >> 6) & 3) << 4);
            w[l] = static_cast<int16_t>(scales[l / 16] * (q0 - 32));
            w[32 + l] = static_cast<int16_t>(scales[2 + l / 16] * (q1 - 32));
            w[64 + l] = static_cast<int16_t>(scales[4 + l / 16] * (q2 - 32));
            w[96 + l] = static_cast<int16_t>(scales[6 + l / 16] * (q3 - 32));
        }
    }
}

// What the kernels need to know of a type. kMins: a second term, dmin * M.
template <class Block>
struct WeightTraits;
template <>
struct WeightTraits<BlockQ4_K> {
    static constexpr bool kMins = true;
    static constexpr uint32_t kSuperblockBytes = 144;
};
template <>
struct WeightTraits<BlockQ5_K> {
    static constexpr bool kMins = true;
    static constexpr uint32_t kSuperblockBytes = 176;
};
template <>
struct WeightTraits<BlockQ6_K> {
    static constexpr bool kMins = false;
    static constexpr uint32_t kSuperblockBytes = 210;
};
template <>
struct WeightTraits<BlockQ8_0> {
    static constexpr bool kMins = false;
    static constexpr uint32_t kSuperblockBytes = 8 * 34;
};

}  // namespace
}  // namespace muser::device::cpu
