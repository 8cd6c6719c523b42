// One column against matrices in layout _r16 by byte products, for AVX2 and NEON: decode. (AVX-512
// has avx512_r16.h.) Weights are unsigned bytes, the planes of q signed ones; T = 256 * TH + TL.
//
// AVX2's multiply-add of bytes saturates at 16 bits, so its sums run over only as many dwords as
// cannot reach that, and meet their scale in a multiply-add of words. NEON's dot product adds to 32
// bits.
//
// Included by the translation units of single instruction sets: internal linkage only.
#pragma once

#include "device/cpu/products/word_columns.h"

namespace muser::device::cpu {
namespace {

#if defined(__aarch64__)

using ByteSums = Ints;
using Scale = Ints;
constexpr uint32_t kRunQ5_K = 8, kRunQ6_K = 4;  // dwords whose sums share a scaling: all there are

MUSER_INLINE Ints add_products(Ints acc, Words weights, Words q) {
    return reinterpret_cast<Ints>(vdotq_s32(reinterpret_cast<int32x4_t>(acc),
                                            reinterpret_cast<int8x16_t>(weights),
                                            reinterpret_cast<int8x16_t>(q)));
}
MUSER_INLINE Ints add_scaled(Ints acc, Ints sums, Scale scale) { return acc + sums * scale; }
MUSER_INLINE Scale unsigned_scale(Words bytes, int k) {
    return reinterpret_cast<Ints>((bytes >> (8 * k)) & 0xffu);
}
MUSER_INLINE Scale signed_scale(Words bytes, int k) {
    return reinterpret_cast<Ints>(bytes << (24 - 8 * k)) >> 24;
}
// What add_scaled() subtracts 32 times this value with.
MUSER_INLINE int32_t offset_of(int32_t value) { return -32 * value; }
MUSER_INLINE Ints splat_offset(int32_t offset) { return Ints{} + offset; }

#else

using ByteSums = Shorts;
using Scale = Shorts;
constexpr uint32_t kRunQ5_K = 4, kRunQ6_K = 2;  // 31 * 128 * 2 * 4 and 63 * 128 * 2 * 2 < 2^15

MUSER_INLINE Shorts add_products(Shorts acc, Words weights, Words q) {
    return acc + reinterpret_cast<Shorts>(_mm256_maddubs_epi16(reinterpret_cast<__m256i>(weights),
                                                               reinterpret_cast<__m256i>(q)));
}
MUSER_INLINE Ints add_scaled(Ints acc, Shorts sums, Scale scale) {
    return dot_pairs(acc, sums, scale);
}
MUSER_INLINE Scale unsigned_scale(Words bytes, int k) { return both_words(bytes, k); }
MUSER_INLINE Scale signed_scale(Words bytes, int k) { return both_signed_words(bytes, k); }
// 32 times a value of up to 2040 as two words of 16 times.
MUSER_INLINE int32_t offset_of(int32_t value) {
    const auto word = static_cast<uint16_t>(-16 * value);
    return static_cast<int32_t>(word | static_cast<uint32_t>(word) << 16);
}
MUSER_INLINE Shorts splat_offset(int32_t offset) { return splat_dword(offset); }

#endif

MUSER_INLINE Words q_dword(const int8_t* plane, uint32_t index) {
    uint32_t value;
    __builtin_memcpy(&value, plane + 4 * index, 4);
    return Words{} + value;
}

// The two planes' sums of one sub-block.
struct PlaneSums {
    ByteSums h = {}, l = {};
    MUSER_INLINE void add(PlaneSums& s, Words w, const int8_t* hi, const int8_t* lo, uint32_t e) {
        s.h = add_products(s.h, w, q_dword(hi, e));
        s.l = add_products(s.l, w, q_dword(lo, e));
    }
};
struct Totals {
    Ints th = {}, tl = {};
};
MUSER_INLINE void add_scaled(Totals& t, const PlaneSums& s, Scale scale) {
    t.th = add_scaled(t.th, s.h, scale);
    t.tl = add_scaled(t.tl, s.l, scale);
}

struct Factors {
    Ints mins[8];
    Floats d[1];
    Floats dmin;
};

// The sums of 32 q, as word_columns.h's.
struct MinWords {
    int32_t word[8];
};
MUSER_INLINE MinWords min_words(const int32_t* sums) {
    MinWords out;
    for (int j = 0; j < 8; ++j) out.word[j] = split_sum(sums[2 * j] + sums[2 * j + 1]);
    return out;
}
MUSER_INLINE Floats finish(const Factors& f, const Totals& t, const MinWords& mins, float s,
                           Floats acc) {
    Ints m = {};
    for (int j = 0; j < 8; ++j) {
        m = dot_pairs(m, reinterpret_cast<Shorts>(f.mins[j]), splat_dword(mins.word[j]));
    }
    acc = fma(f.d[0] * splat(s), total(t.th, t.tl), acc);
    return fma(-(f.dmin * splat(s)), __builtin_convertvector(m, Floats), acc);
}

struct BytesQ4_K {
    using Block = BlockQ4_K;
    using Prepared = MinWords;
    static Prepared prepare(const int32_t* sums) { return min_words(sums); }

    MUSER_INLINE Floats step(const uint8_t* lines, const uint8_t*, uint32_t part, const int8_t* hi,
                             const int8_t* lo, const Prepared& prepared, float s, Floats acc) {
        Factors factors;
        const Scales scales = put_scale_mins(lines, part, factors);
        Totals totals;
        for (int c = 0; c < 4; ++c) {
            PlaneSums low, high;
            for (uint32_t i = 0; i < 8; ++i) {
                const Words v = part_of(lines, 4 + 8 * c + i, part);
                PlaneSums::add(low, v & 0x0f0f0f0fu, hi, lo, 16 * c + i);
                PlaneSums::add(high, v >> 4 & 0x0f0f0f0fu, hi, lo, 16 * c + 8 + i);
            }
            const Words four = c < 2 ? scales.s03 : scales.s47;
            add_scaled(totals, low, unsigned_scale(four, 2 * (c % 2)));
            add_scaled(totals, high, unsigned_scale(four, 2 * (c % 2) + 1));
        }
        return finish(factors, totals, prepared, s, acc);
    }
};

struct BytesQ5_K {
    using Block = BlockQ5_K;
    using Prepared = MinWords;
    static Prepared prepare(const int32_t* sums) { return min_words(sums); }

    MUSER_INLINE Floats step(const uint8_t* lines, const uint8_t*, uint32_t part, const int8_t* hi,
                             const int8_t* lo, const Prepared& prepared, float s, Floats acc) {
        Factors factors;
        const Scales scales = put_scale_mins(lines, part, factors);
        Totals totals;
        for (int k = 0; k < 4; ++k) {
            const Scale easy_scale = unsigned_scale(scales.s03, k);
            const Scale hard_scale = unsigned_scale(scales.s47, k);
            for (uint32_t first = 0; first < 8; first += kRunQ5_K) {
                PlaneSums easy, hard;
                for (uint32_t i = first; i < first + kRunQ5_K; ++i) {
                    const Words v = part_of(lines, 4 + 5 * i + k, part);
                    const Words top = part_of(lines, 8 + 5 * i, part) >> (2 * k) & 0x03030303u;
                    PlaneSums::add(easy, v >> 3 & 0x1f1f1f1fu, hi, lo, 8 * k + i);
                    PlaneSums::add(hard, (v & 0x07070707u) | top << 3, hi, lo, 32 + 8 * k + i);
                }
                add_scaled(totals, easy, easy_scale);
                add_scaled(totals, hard, hard_scale);
            }
        }
        return finish(factors, totals, prepared, s, acc);
    }
};

// Each weight counts 32 too many: what that adds to TH and TL is taken off at the end of a
// sub-block, with S = 256 * high + low the sum of its q.
struct BytesQ6_K {
    using Block = BlockQ6_K;
    struct Prepared {
        int32_t high[16], low[16];
    };
    static Prepared prepare(const int32_t* sums) {
        Prepared out;
        for (int j = 0; j < 16; ++j) {
            const auto low = static_cast<int8_t>(sums[j]);
            out.low[j] = offset_of(low);
            out.high[j] = offset_of((sums[j] - low) >> 8);
        }
        return out;
    }

    MUSER_INLINE Floats step(const uint8_t* lines, const uint8_t* d, uint32_t part,
                             const int8_t* hi, const int8_t* lo, const Prepared& prepared, float s,
                             Floats acc) {
        Totals totals;
        for (int g = 0; g < 4; ++g) {
            Scale scale[4];
            for (int k = 0; k < 4; ++k) {
                scale[k] = signed_scale(part_of(lines, k, part), g);
                add_scaled(
                    totals,
                    {splat_offset(prepared.high[4 * k + g]), splat_offset(prepared.low[4 * k + g])},
                    scale[k]);
            }
            for (uint32_t first = 4 * g; first < 4u * g + 4; first += kRunQ6_K) {
                PlaneSums sums[4];
                for (uint32_t i = first; i < first + kRunQ6_K; ++i) {
                    const Words v0 = part_of(lines, 4 + 3 * i, part),
                                v1 = part_of(lines, 5 + 3 * i, part),
                                v2 = part_of(lines, 6 + 3 * i, part);
                    const Words last =
                        (v0 & 0x03030303u) | (v2 >> 4 & 0x0c0c0c0cu) | (v1 >> 2 & 0x30303030u);
                    PlaneSums::add(sums[0], v0 >> 2 & 0x3f3f3f3fu, hi, lo, i);
                    PlaneSums::add(sums[1], v1 & 0x3f3f3f3fu, hi, lo, 16 + i);
                    PlaneSums::add(sums[2], v2 & 0x3f3f3f3fu, hi, lo, 32 + i);
                    PlaneSums::add(sums[3], last, hi, lo, 48 + i);
                }
                for (int k = 0; k < 4; ++k) add_scaled(totals, sums[k], scale[k]);
            }
        }
        return fma(factors(d, part) * splat(s), total(totals.th, totals.tl), acc);
    }
};

#if defined(__aarch64__)
// Signed bytes on both sides are what NEON multiplies.
struct BytesQ8_0 {
    using Block = BlockQ8_0;
    struct Prepared {};
    static Prepared prepare(const int32_t*) { return {}; }

    MUSER_INLINE Floats step(const uint8_t* lines, const uint8_t*, uint32_t part, const int8_t* hi,
                             const int8_t* lo, const Prepared&, float s, Floats acc) {
        for (uint32_t j = 0; j < 8; ++j) {
            PlaneSums sums;
            for (uint32_t e = 8 * j; e < 8 * j + 8; ++e) {
                PlaneSums::add(sums, part_of(lines, 4 + e, part) ^ 0x80808080u, hi, lo, e);
            }
            acc = fma(factors(lines + 32 * j, part) * splat(s),
                      __builtin_convertvector((sums.h << 8) + sums.l, Floats), acc);
        }
        return acc;
    }
};
#else
// Full bytes on both sides would saturate: words instead.
struct BytesQ8_0 {
    using Block = BlockQ8_0;
    struct Prepared {};
    static Prepared prepare(const int32_t*) { return {}; }

    MUSER_INLINE Floats step(const uint8_t* lines, const uint8_t*, uint32_t part, const int8_t* hi,
                             const int8_t* lo, const Prepared&, float s, Floats acc) {
        int32_t even[64], odd[64];
        widen_planes(hi, lo, even, odd);
        for (uint32_t j = 0; j < 8; ++j) {
            Ints sum = {};
            for (uint32_t e = 8 * j; e < 8 * j + 8; ++e) {
                const Shorts v =
                    reinterpret_cast<Shorts>(part_of(lines, 4 + e, part) ^ 0x80808080u);
                sum = dot_pairs(sum, (v << 8) >> 8, splat_dword(even[e]));
                sum = dot_pairs(sum, v >> 8, splat_dword(odd[e]));
            }
            acc = fma(factors(lines + 32 * j, part) * splat(s),
                      __builtin_convertvector(sum, Floats), acc);
        }
        return acc;
    }
};
#endif

template <class Kernel>
void byte_vector(const Tile& t, uint32_t column) {
    using Block = typename Kernel::Block;
    constexpr uint32_t kSegment = 128;  // superblocks prepared at a time
    constexpr uint64_t kBytes = R16<Block>::kBlockLines * kLine;
    constexpr uint64_t kAhead = 2 * kBytes;
    const uint32_t blocks = t.cols / 256;
    const uint64_t group_bytes = r16_group_bytes<Block>(blocks);
    const BlockForm x = block_form(t.vectors, t.cols, column);
    float* y = t.y + column * t.y_stride;
    typename Kernel::Prepared prepared[kSegment];
    for (uint32_t from = 0; from < blocks; from += kSegment) {
        const uint32_t count = min_u32(kSegment, blocks - from);
        for (uint32_t b = 0; b < count; ++b) {
            prepared[b] = Kernel::prepare(x.sums + 16 * (from + b));
        }
        for (uint64_t row = t.first_row; row < t.end_row; row += kRowGroup) {
            const auto* group =
                reinterpret_cast<const uint8_t*>(t.weights) + row / kRowGroup * group_bytes;
            const auto rows = static_cast<uint32_t>(min_u64(kRowGroup, t.end_row - row));
            float* out = y + (row - t.first_row);
            float sixteen[16] = {};
            if (from != 0) __builtin_memcpy(sixteen, out, rows * sizeof *out);
            Floats acc[kParts];
            for (uint32_t p = 0; p < kParts; ++p) acc[p] = load(sixteen + p * kLanes);
            const uint8_t* lines = group + R16<Block>::header_bytes(blocks) + from * kBytes;
            for (uint32_t b = 0; b < count; ++b, lines += kBytes) {
                for (uint64_t i = 0; i < kBytes; i += kLine) __builtin_prefetch(lines + kAhead + i);
                for (uint32_t p = 0; p < kParts; ++p) {
                    acc[p] = Kernel::step(lines, group + 32 * (from + b), p,
                                          x.hi + 256 * (from + b), x.lo + 256 * (from + b),
                                          prepared[b], x.scales[from + b], acc[p]);
                }
            }
            for (uint32_t p = 0; p < kParts; ++p) store(sixteen + p * kLanes, acc[p]);
            __builtin_memcpy(out, sixteen, rows * sizeof *out);
        }
    }
}

// From here on unpacking once for all columns pays.
constexpr uint32_t kFewestWordColumns = 4;

template <class Kernel>
void byte_columns(const Tile& t) {
    if (t.columns >= kFewestWordColumns) return word_columns<typename Kernel::Block>(t);
    for (uint32_t c = 0; c < t.columns; ++c) byte_vector<Kernel>(t, c);
}

}  // namespace
}  // namespace muser::device::cpu
