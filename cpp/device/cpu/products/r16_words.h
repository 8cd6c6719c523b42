// Superblocks of layout _r16 (r16.h) as 16-bit words, each weight times its sub-block's scale, in
// whatever vectors the instruction set has (lanes.h): a line is one, two or four of them.
//
// Included by the translation units of single instruction sets: internal linkage only.
#pragma once

#include "device/cpu/lanes.h"
#include "device/cpu/products/r16.h"
#include "device/cpu/products/weights.h"

namespace muser::device::cpu {
namespace {

typedef int16_t Shorts __attribute__((vector_size(4 * MUSER_LANES)));
typedef uint16_t UShorts __attribute__((vector_size(4 * MUSER_LANES)));

// Vectors in a line; part p of a line holds rows kLanes * p and on.
constexpr uint32_t kParts = 16 / kLanes;

// One superblock of kLanes rows. Dword lane r of even[e] holds weights 4e and 4e + 2 of row r,
// odd[e] 4e + 1 and 4e + 3: that is how they come out of bytes without a shuffle.
struct alignas(64) WordPanel {
    Shorts even[64], odd[64];
    Ints mins[8];  // per sub-block: m in the low word, 64 m in the high one
    Floats d[8];   // Q8_0: per block; else the first
    Floats dmin;
};

MUSER_INLINE Words part_of(const uint8_t* lines, uint32_t index, uint32_t part) {
    return load_as<Words>(lines + kLine * index + 4 * kLanes * part);
}
MUSER_INLINE Floats factors(const uint8_t* sixteen, uint32_t part) {
    return load_f16(reinterpret_cast<const uint16_t*>(sixteen) + kLanes * part);
}

// Byte k of each dword in both words of the dword.
MUSER_INLINE Shorts both_words(Words bytes, int k) {
    const Words byte = (bytes >> (8 * k)) & 0xffu;
    return reinterpret_cast<Shorts>(byte | byte << 16);
}
MUSER_INLINE Shorts both_signed_words(Words bytes, int k) {
    const Words byte = bytes >> (8 * k);
    const Shorts high = reinterpret_cast<Shorts>((byte << 8 & 0xff00u) | byte << 24);
    return high >> 8;
}

// Dword e of the panel from four weights a lane (bytes that need no mask) and their scale.
MUSER_INLINE void put_words(WordPanel& out, uint32_t e, Words bytes, Shorts scale, short bias = 0) {
    const UShorts words = reinterpret_cast<UShorts>(bytes);
    out.even[e] = (reinterpret_cast<Shorts>(words & 0xff) - bias) * scale;
    out.odd[e] = (reinterpret_cast<Shorts>(words >> 8) - bias) * scale;
}
MUSER_INLINE Words bytes_right(Words v, int shift) {
    return reinterpret_cast<Words>(reinterpret_cast<UShorts>(v) >> shift);
}

// The 6-bit scales of sub-blocks 0-3 and 4-7, as four bytes a lane; fills in factors and mins.
struct Scales {
    Words s03, s47;
};
template <class Out>
MUSER_INLINE Scales put_scale_mins(const uint8_t* lines, uint32_t part, Out& out) {
    const Words a = part_of(lines, 1, part), b = part_of(lines, 2, part),
                c = part_of(lines, 3, part);
    const Words m03 = b & 0x3f3f3f3fu;
    const Words m47 = (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u);
    for (int j = 0; j < 4; ++j) {
        const Words low = (m03 >> (8 * j)) & 0xffu, high = (m47 >> (8 * j)) & 0xffu;
        out.mins[j] = reinterpret_cast<Ints>(low | low << 22);
        out.mins[4 + j] = reinterpret_cast<Ints>(high | high << 22);
    }
    out.d[0] = factors(lines, part);
    out.dmin = factors(lines + 32, part);
    return {a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u)};
}

MUSER_INLINE void unpack(const BlockQ4_K*, const uint8_t* lines, const uint8_t*, uint32_t part,
                         WordPanel& out) {
    const Scales s = put_scale_mins(lines, part, out);
    for (int c = 0; c < 4; ++c) {
        const Words scales = c < 2 ? s.s03 : s.s47;
        const Shorts low = both_words(scales, 2 * (c % 2));
        const Shorts high = both_words(scales, 2 * (c % 2) + 1);
        for (uint32_t i = 0; i < 8; ++i) {
            const Words v = part_of(lines, 4 + 8 * c + i, part);
            put_words(out, 16 * c + i, v & 0x0f0f0f0fu, low);
            put_words(out, 16 * c + 8 + i, bytes_right(v, 4) & 0x0f0f0f0fu, high);
        }
    }
}

MUSER_INLINE void unpack(const BlockQ5_K*, const uint8_t* lines, const uint8_t*, uint32_t part,
                         WordPanel& out) {
    const Scales s = put_scale_mins(lines, part, out);
    for (int k = 0; k < 4; ++k) {
        const Shorts low = both_words(s.s03, k), high = both_words(s.s47, k);
        for (uint32_t i = 0; i < 8; ++i) {
            const Words v = part_of(lines, 4 + 5 * i + k, part);
            const Words top = part_of(lines, 8 + 5 * i, part) >> (2 * k) & 0x03030303u;
            put_words(out, 8 * k + i, bytes_right(v, 3) & 0x1f1f1f1fu, low);
            put_words(out, 32 + 8 * k + i, (v & 0x07070707u) | top << 3, high);
        }
    }
}

MUSER_INLINE void unpack(const BlockQ6_K*, const uint8_t* lines, const uint8_t* d, uint32_t part,
                         WordPanel& out) {
    out.d[0] = factors(d, part);
    for (int g = 0; g < 4; ++g) {
        Shorts scale[4];
        for (int k = 0; k < 4; ++k) scale[k] = both_signed_words(part_of(lines, k, part), g);
        for (uint32_t i = 4 * g; i < 4u * g + 4; ++i) {
            const Words v0 = part_of(lines, 4 + 3 * i, part), v1 = part_of(lines, 5 + 3 * i, part),
                        v2 = part_of(lines, 6 + 3 * i, part);
            const Words last =
                (v0 & 0x03030303u) | (v2 >> 4 & 0x0c0c0c0cu) | (v1 >> 2 & 0x30303030u);
            put_words(out, i, v0 >> 2 & 0x3f3f3f3fu, scale[0], 32);
            put_words(out, 16 + i, v1 & 0x3f3f3f3fu, scale[1], 32);
            put_words(out, 32 + i, v2 & 0x3f3f3f3fu, scale[2], 32);
            put_words(out, 48 + i, last, scale[3], 32);
        }
    }
}

MUSER_INLINE void unpack(const BlockQ8_0*, const uint8_t* lines, const uint8_t*, uint32_t part,
                         WordPanel& out) {
    for (int j = 0; j < 8; ++j) out.d[j] = factors(lines + 32 * j, part);
    for (uint32_t e = 0; e < 64; ++e) {
        const Shorts v = reinterpret_cast<Shorts>(part_of(lines, 4 + e, part) ^ 0x80808080u);
        out.even[e] = (v << 8) >> 8;
        out.odd[e] = v >> 8;
    }
}

}  // namespace
}  // namespace muser::device::cpu
