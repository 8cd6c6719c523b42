// Embedding: one row of the table to f32 (docs/numerics.md §8). A unit is 256 elements.
//
// These are plain loops over bytes; a row is a few kilobytes, read once per token.
#include "contract/blocks.h"
#include "device/cpu/kernel_groups.h"
#include "device/cpu/lanes_math.h"

namespace muser::device::cpu::MUSER_ISA {
namespace {

using contract::BlockQ4_K;
using contract::BlockQ5_K;
using contract::BlockQ6_K;
using contract::BlockQ8_0;
using contract::f16_to_f32;

// The 6-bit scale and min of sub-block j: the first four lie plainly, the others are split.
MUSER_INLINE void scale_min(const uint8_t* packed, unsigned j, float* scale, float* min) {
    unsigned s = 0;
    unsigned m = 0;
    if (j < 4) {
        s = packed[j] & 63u;
        m = packed[j + 4] & 63u;
    } else {
        s = (packed[j + 4] & 15u) | ((packed[j - 4] >> 6) << 4);
        m = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
    }
    *scale = static_cast<float>(s);
    *min = static_cast<float>(m);
}

MUSER_INLINE void dequantise(const BlockQ4_K& w, float* y) {
    for (unsigned j = 0; j < 8; ++j) {
        float scale, min;
        scale_min(w.scales, j, &scale, &min);
        const float d = f16_to_f32(w.d) * scale;
        const float m = f16_to_f32(w.dmin) * min;
        for (unsigned i = 0; i < 32; ++i) {
            const unsigned byte = w.qs[j / 2 * 32 + i];
            const unsigned q = j % 2 == 0 ? byte & 15u : byte >> 4;
            y[j * 32 + i] = d * static_cast<float>(q) - m;
        }
    }
}

MUSER_INLINE void dequantise(const BlockQ5_K& w, float* y) {
    for (unsigned j = 0; j < 8; ++j) {
        float scale, min;
        scale_min(w.scales, j, &scale, &min);
        const float d = f16_to_f32(w.d) * scale;
        const float m = f16_to_f32(w.dmin) * min;
        for (unsigned i = 0; i < 32; ++i) {
            const unsigned byte = w.qs[j / 2 * 32 + i];
            const unsigned q = (j % 2 == 0 ? byte & 15u : byte >> 4) | ((w.qh[i] >> j & 1u) << 4);
            y[j * 32 + i] = d * static_cast<float>(q) - m;
        }
    }
}

// Elements come in halves of 128: four runs of 32 whose low nibbles share 64 bytes and whose upper
// two bits share 32.
MUSER_INLINE void dequantise(const BlockQ6_K& w, float* y) {
    const float d = f16_to_f32(w.d);
    for (unsigned sub = 0; sub < 16; ++sub) {  // 16 elements with one scale
        const unsigned half = sub / 8;
        const unsigned run = sub / 2 % 4;
        const uint8_t* ql = w.ql + half * 64 + run % 2 * 32 + sub % 2 * 16;
        const uint8_t* qh = w.qh + half * 32 + sub % 2 * 16;
        const float scale = d * static_cast<float>(w.scales[sub]);
        for (unsigned l = 0; l < 16; ++l) {
            const unsigned low = ql[l] >> (run / 2 * 4) & 15u;
            const unsigned high = qh[l] >> (2 * run) & 3u;
            y[sub * 16 + l] = scale * static_cast<float>(static_cast<int>(low | high << 4) - 32);
        }
    }
}

MUSER_INLINE void dequantise(const BlockQ8_0& w, float* y) {
    const float d = f16_to_f32(w.d);
    for (unsigned i = 0; i < 32; ++i) y[i] = d * static_cast<float>(w.qs[i]);
}

struct Float16 {
    uint16_t bits;
};
struct BFloat16 {
    uint16_t bits;
};
struct Float32 {
    float value;
};
MUSER_INLINE void dequantise(const Float16& w, float* y) { *y = f16_to_f32(w.bits); }
MUSER_INLINE void dequantise(const BFloat16& w, float* y) { *y = contract::bf16_to_f32(w.bits); }
MUSER_INLINE void dequantise(const Float32& w, float* y) { *y = w.value; }

template <class Block>
constexpr uint32_t kElements = 1;
template <>
constexpr uint32_t kElements<BlockQ4_K> = 256;
template <>
constexpr uint32_t kElements<BlockQ5_K> = 256;
template <>
constexpr uint32_t kElements<BlockQ6_K> = 256;
template <>
constexpr uint32_t kElements<BlockQ8_0> = 32;

Work embed_work(const Call& call) {
    const EmbedArgs a = arguments<EmbedArgs>(call);
    return {(uint64_t{a.hidden} + MUSER_BLOCK - 1) / MUSER_BLOCK, 200};
}

template <class Block>
void embed(const Call& call, uint64_t begin, uint64_t end) {
    const EmbedArgs a = arguments<EmbedArgs>(call);
    const StepValues& step = *buffer<const StepValues>(call, 1);
    const uint32_t token = step.chained != 0 ? step.device_token : step.token;
    float* hidden = buffer<float>(call, 3);
    const uint64_t last = end * MUSER_BLOCK < a.hidden ? end * MUSER_BLOCK : a.hidden;
    if (token >= a.vocab) {
        // The engine refuses such ids; should one get here, the row must not look like a result.
        for (uint64_t i = begin * MUSER_BLOCK; i < last; ++i) hidden[i] = from_bits(0x7fc00000u);
        return;
    }
    const auto* row =
        reinterpret_cast<const Block*>(buffer<const std::byte>(call, 2) + token * a.row_bytes);
    for (uint64_t i = begin * MUSER_BLOCK; i < last; i += kElements<Block>) {
        dequantise(row[i / kElements<Block>], hidden + i);
    }
}

constexpr KernelImpl kTable[] = {
    {"embed_q4_K", embed_work, embed<BlockQ4_K>}, {"embed_q5_K", embed_work, embed<BlockQ5_K>},
    {"embed_q6_K", embed_work, embed<BlockQ6_K>}, {"embed_q8_0", embed_work, embed<BlockQ8_0>},
    {"embed_f32", embed_work, embed<Float32>},    {"embed_f16", embed_work, embed<Float16>},
    {"embed_bf16", embed_work, embed<BFloat16>},
};

}  // namespace

KernelTable embedding_kernels() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace muser::device::cpu::MUSER_ISA
