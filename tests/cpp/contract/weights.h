// Random and directed weight rows for the contract's tests, and their unpacking by ggml's own loops
// (byte order of the packed block, not the contract's per-element view).
#pragma once

#include <cstring>
#include <vector>

#include "contract/blocks.h"
#include "reference.h"

namespace muser::reference {

using contract::BlockQ4_K;
using contract::BlockQ5_K;
using contract::BlockQ6_K;
using contract::BlockQ8_0;
using contract::kBlock;
using contract::WeightType;

// One row of n weights with random bits and sane scales (|d| in [2^-12, 2^-6)).
inline std::vector<uint8_t> random_row(WeightType type, size_t n, Random& random) {
    const contract::WeightTypeInfo& info = contract::weight_type_info(type);
    std::vector<uint8_t> row(n / info.block_elements * info.block_bytes);
    const auto half = [&](size_t at) {
        const uint32_t value = (random.word() & 0x83ffu) | (3 + random.below(6)) << 10;
        row[at] = static_cast<uint8_t>(value & 255);
        row[at + 1] = static_cast<uint8_t>(value >> 8);
    };
    if (type == WeightType::F32) {
        for (size_t k = 0; k < n; ++k) {
            const float value = random.gaussian();
            std::memcpy(row.data() + 4 * k, &value, 4);
        }
        return row;
    }
    if (type == WeightType::F16 || type == WeightType::BF16) {
        for (size_t k = 0; k < n; ++k) {
            const float value = random.gaussian();
            const uint16_t bits16 = type == WeightType::F16 ? contract::f32_to_f16(value)
                                                            : contract::f32_to_bf16(value);
            std::memcpy(row.data() + 2 * k, &bits16, 2);
        }
        return row;
    }
    for (uint8_t& byte : row) byte = static_cast<uint8_t>(random.word());
    for (size_t at = 0; at < row.size(); at += info.block_bytes) {
        if (type == WeightType::Q6_K) {
            half(at + 208);
        } else {
            half(at);
            if (type != WeightType::Q8_0) half(at + 2);
        }
    }
    return row;
}

// The integer weights of one superblock in element order, and each element's scale and min.
struct Unpacked {
    int w[kBlock];
    int scale[kBlock];
    int min[kBlock];
};

inline void unpack_scales(const uint8_t* packed, Unpacked* out) {
    for (size_t j = 0; j < 8; ++j) {
        int scale = packed[j] & 63;
        int min = 0;
        if (j < 4) {
            min = packed[j + 4] & 63;
        } else {
            scale = (packed[j + 4] & 0x0f) + 16 * (packed[j - 4] >> 6);
            min = (packed[j + 4] >> 4) + 16 * (packed[j] >> 6);
        }
        for (size_t i = 0; i < 32; ++i) {
            out->scale[32 * j + i] = scale;
            out->min[32 * j + i] = min;
        }
    }
}

inline Unpacked unpack(const BlockQ4_K& b) {
    Unpacked out{};
    unpack_scales(b.scales, &out);
    int* w = out.w;
    for (size_t base = 0; base < 128; base += 32) {
        for (size_t l = 0; l < 32; ++l) *w++ = b.qs[base + l] % 16;
        for (size_t l = 0; l < 32; ++l) *w++ = b.qs[base + l] / 16;
    }
    return out;
}

inline Unpacked unpack(const BlockQ5_K& b) {
    Unpacked out{};
    unpack_scales(b.scales, &out);
    int* w = out.w;
    int mask = 1;
    for (size_t base = 0; base < 128; base += 32) {
        for (size_t l = 0; l < 32; ++l) {
            *w++ = b.qs[base + l] % 16 + ((b.qh[l] & mask) != 0 ? 16 : 0);
        }
        mask <<= 1;
        for (size_t l = 0; l < 32; ++l) {
            *w++ = b.qs[base + l] / 16 + ((b.qh[l] & mask) != 0 ? 16 : 0);
        }
        mask <<= 1;
    }
    return out;
}

inline Unpacked unpack(const BlockQ6_K& b) {
    Unpacked out{};
    for (size_t half = 0; half < 2; ++half) {
        const uint8_t* ql = b.ql + 64 * half;
        const uint8_t* qh = b.qh + 32 * half;
        int* w = out.w + 128 * half;
        for (size_t l = 0; l < 32; ++l) {
            w[l] = (ql[l] % 16 + 16 * (qh[l] & 3)) - 32;
            w[l + 32] = (ql[l + 32] % 16 + 16 * ((qh[l] >> 2) & 3)) - 32;
            w[l + 64] = (ql[l] / 16 + 16 * ((qh[l] >> 4) & 3)) - 32;
            w[l + 96] = (ql[l + 32] / 16 + 16 * (qh[l] >> 6)) - 32;
        }
    }
    for (size_t i = 0; i < kBlock; ++i) out.scale[i] = b.scales[i / 16];
    return out;
}

}  // namespace muser::reference
