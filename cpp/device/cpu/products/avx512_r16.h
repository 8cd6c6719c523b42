// One column against matrices in layout _r16 (r16.h) with AVX-512 VNNI: decode.
//
// A zmm is 16 rows. vpdpbusd multiplies four unsigned weights of each row with four signed bytes of
// one plane, broadcast from memory; the hi and lo planes have their own sums, T = 256 * TH + TL.
// The bound is the memory; arithmetic must stay well under 8 vector operations per line read.
//
// Included by the translation units of single instruction sets: internal linkage only.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "device/cpu/products/r16.h"
#include "device/cpu/products/tile.h"
#include "device/cpu/products/weights.h"
#include "device/cpu/products/word_columns.h"

namespace muser::device::cpu {
namespace {

// Superblocks of a row whose prepared activations are on the stack at a time.
constexpr uint32_t kSegment = 128;

// Groups of rows that are worked on side by side: they share the broadcast activations, their sums
// are chains that do not wait for each other, and each is a stream for the prefetcher. In the
// caches two take 150 cycles for a Q4_K superblock of 16 rows where one takes 170; its
// multiplications and masks alone fill 141.
constexpr uint32_t kTogether = 2;

// Lines to fetch ahead of the one in use, into the second cache: the first one's few outstanding
// requests are for the loads themselves. The second has 48, and the processor's own prefetcher
// wants some, so two streams must not be far ahead. Shares of the plain read rate on a Sapphire
// Rapids core, Q4_K and Q6_K, in a quiet minute and while others used the memory: 16 lines 0.94 and
// 0.90, 0.92 and 0.87; 24 lines 0.95 and 0.93, 0.87 and 0.86; 36 lines 0.90 and 0.90, 0.81 and
// 0.84; one stream 72 ahead 0.86 and 0.83, 0.72 and 0.71.
constexpr uint32_t kAhead = 16;

static inline __m512i line(const uint8_t* lines, uint32_t index) {
    return _mm512_load_si512(lines + kLine * index);
}
static inline void fetch(const uint8_t* lines, uint32_t index) {
    _mm_prefetch(reinterpret_cast<const char*>(lines + kLine * (index + kAhead)), _MM_HINT_T1);
}
static inline __m512i dword(const int8_t* bytes, uint32_t index) {
    int32_t value;
    __builtin_memcpy(&value, bytes + 4 * index, 4);
    return _mm512_set1_epi32(value);
}
static inline __m512i splat8(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }

// Bit by bit: mask ? a : b.
static inline __m512i select(__m512i mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

// f32 of 256 * th + tl (numerics 0).
static inline __m512 total(__m512i th, __m512i tl) {
    const __m512i a = _mm512_add_epi32(_mm512_srai_epi32(th, 8), _mm512_srai_epi32(tl, 16));
    const __m512i b =
        _mm512_add_epi32(_mm512_slli_epi32(_mm512_and_si512(th, _mm512_set1_epi32(255)), 8),
                         _mm512_and_si512(tl, _mm512_set1_epi32(65535)));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(a), _mm512_set1_ps(65536.0f), _mm512_cvtepi32_ps(b));
}

static inline __m512 halves(const uint8_t* sixteen) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(sixteen)));
}

// Byte k of each dword as f32.
template <int k>
static inline __m512 byte_to_f32(__m512i bytes) {
    const __m512i pick = _mm512_set4_epi32(0x0c | 0x80808000 | k, 0x08 | 0x80808000 | k,
                                           0x04 | 0x80808000 | k, 0x80808000 | k);
    return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(bytes, pick));
}

// The 6-bit scales and mins of 16 rows, four to a dword.
struct ScaleMins {
    __m512i s03, s47, m03, m47;
};
static inline ScaleMins scale_mins(const uint8_t* lines) {
    const __m512i a = line(lines, 1), b = line(lines, 2), c = line(lines, 3);
    const __m512i six = splat8(63), four = splat8(15);
    return {
        _mm512_and_si512(a, six),
        _mm512_and_si512(select(four, c, _mm512_srli_epi32(a, 2)), six),
        _mm512_and_si512(b, six),
        _mm512_and_si512(select(four, _mm512_srli_epi32(c, 4), _mm512_srli_epi32(b, 2)), six),
    };
}

// The sums of 32 q as three planes of bytes, S = 65536 * S2 + 256 * S1 + S0, four sub-blocks to a
// dword: a vpdpbusd with four mins at once. [plane][half]
struct MinPlanes {
    int8_t plane[3][2][4];
};
static inline MinPlanes min_planes(const int32_t sums[16]) {
    MinPlanes out;
    for (int j = 0; j < 8; ++j) {
        int32_t s = sums[2 * j] + sums[2 * j + 1];
        for (int p = 0; p < 3; ++p) {
            const auto low = static_cast<int8_t>(s);
            out.plane[p][j / 4][j % 4] = low;
            s = (s - low) >> 8;
        }
    }
    return out;
}
static inline __m512i min_sums(const ScaleMins& sm, const MinPlanes& planes) {
    __m512i m[3];
    for (int p = 0; p < 3; ++p) {
        m[p] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), sm.m03, dword(planes.plane[p][0], 0));
        m[p] = _mm512_dpbusd_epi32(m[p], sm.m47, dword(planes.plane[p][1], 0));
    }
    return _mm512_add_epi32(_mm512_add_epi32(m[0], _mm512_slli_epi32(m[1], 8)),
                            _mm512_slli_epi32(m[2], 16));
}

static inline __m512 finish_mins(const uint8_t* lines, __m512i th, __m512i tl, __m512i m, float s,
                                 __m512 acc) {
    const __m512 scale = _mm512_set1_ps(s);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(halves(lines), scale), total(th, tl), acc);
    return _mm512_fnmadd_ps(_mm512_mul_ps(halves(lines + 32), scale), _mm512_cvtepi32_ps(m), acc);
}

// ---- Q4_K
// ----------------------------------------------------------------------------------------

struct VectorQ4_K {
    using Block = BlockQ4_K;
    using Prepared = MinPlanes;
    static Prepared prepare(const int32_t* sums) { return min_planes(sums); }

    // f32 sums stay exact: four sub-blocks of 32 * 15 * 128 * 63 are below 2^24. High nibbles are
    // not shifted down: their sums are 16 times too large, which changes no bit of a float.
    template <uint32_t G>
    static void step(const uint8_t* const (&lines)[G], const uint8_t* const (&)[G],
                     const int8_t* hi, const int8_t* lo, const Prepared& prepared, float s,
                     __m512 (&acc)[G]) {
        ScaleMins sm[G];
        __m512 th0[G], tl0[G], th1[G], tl1[G];
#pragma GCC unroll 2
        for (uint32_t g = 0; g < G; ++g) {
            sm[g] = scale_mins(lines[g]);
            th0[g] = tl0[g] = th1[g] = tl1[g] = _mm512_setzero_ps();
        }
        const auto chunk = [&](auto index) {
            constexpr int c = index;
            __m512i h0[G], l0[G], h1[G], l1[G];
#pragma GCC unroll 2
            for (uint32_t g = 0; g < G; ++g) h0[g] = l0[g] = h1[g] = l1[g] = _mm512_setzero_si512();
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) {
                const __m512i xh0 = dword(hi, 16 * c + i), xl0 = dword(lo, 16 * c + i);
                const __m512i xh1 = dword(hi, 16 * c + 8 + i), xl1 = dword(lo, 16 * c + 8 + i);
#pragma GCC unroll 2
                for (uint32_t g = 0; g < G; ++g) {
                    const __m512i v = line(lines[g], 4 + 8 * c + i);
                    fetch(lines[g], 4 + 8 * c + i);
                    const __m512i w0 = _mm512_and_si512(v, splat8(0x0f));
                    const __m512i w1 = _mm512_and_si512(v, splat8(0xf0));
                    h0[g] = _mm512_dpbusd_epi32(h0[g], w0, xh0);
                    l0[g] = _mm512_dpbusd_epi32(l0[g], w0, xl0);
                    h1[g] = _mm512_dpbusd_epi32(h1[g], w1, xh1);
                    l1[g] = _mm512_dpbusd_epi32(l1[g], w1, xl1);
                }
            }
#pragma GCC unroll 2
            for (uint32_t g = 0; g < G; ++g) {
                const __m512i scales = c < 2 ? sm[g].s03 : sm[g].s47;
                const __m512 s0 = byte_to_f32<2 * (c % 2)>(scales);
                const __m512 s1 = byte_to_f32<2 * (c % 2) + 1>(scales);
                th0[g] = _mm512_fmadd_ps(s0, _mm512_cvtepi32_ps(h0[g]), th0[g]);
                tl0[g] = _mm512_fmadd_ps(s0, _mm512_cvtepi32_ps(l0[g]), tl0[g]);
                th1[g] = _mm512_fmadd_ps(s1, _mm512_cvtepi32_ps(h1[g]), th1[g]);
                tl1[g] = _mm512_fmadd_ps(s1, _mm512_cvtepi32_ps(l1[g]), tl1[g]);
            }
        };
        chunk(std::integral_constant<int, 0>{});
        chunk(std::integral_constant<int, 1>{});
        chunk(std::integral_constant<int, 2>{});
        chunk(std::integral_constant<int, 3>{});
#pragma GCC unroll 2
        for (uint32_t g = 0; g < G; ++g) {
            for (int i = 0; i < 4; ++i) fetch(lines[g], i);
            const __m512i m = min_sums(sm[g], prepared);
            const __m512i th = _mm512_add_epi32(_mm512_cvtps_epi32(th0[g]),
                                                _mm512_srai_epi32(_mm512_cvtps_epi32(th1[g]), 4));
            const __m512i tl = _mm512_add_epi32(_mm512_cvtps_epi32(tl0[g]),
                                                _mm512_srai_epi32(_mm512_cvtps_epi32(tl1[g]), 4));
            acc[g] = finish_mins(lines[g], th, tl, m, s, acc[g]);
        }
    }
};

// ---- Q5_K
// ----------------------------------------------------------------------------------------

struct VectorQ5_K {
    using Block = BlockQ5_K;
    using Prepared = MinPlanes;
    static Prepared prepare(const int32_t* sums) { return min_planes(sums); }

    // f32 sums of two sub-blocks stay exact: 2 * 32 * 31 * 128 * 63 is below 2^24. Weights in a
    // byte's top bits count 8 times.
    template <uint32_t G>
    static void step(const uint8_t* const (&lines)[G], const uint8_t* const (&)[G],
                     const int8_t* hi, const int8_t* lo, const Prepared& prepared, float s,
                     __m512 (&acc)[G]) {
#pragma GCC unroll 2
        for (uint32_t g = 0; g < G; ++g) {
            acc[g] = step(lines[g], hi, lo, prepared, s, acc[g]);
        }
    }
    static __m512 step(const uint8_t* lines, const int8_t* hi, const int8_t* lo,
                       const Prepared& prepared, float s, __m512 acc) {
        const ScaleMins sm = scale_mins(lines);
        const __m512i m = min_sums(sm, prepared);
        __m512i h[8], l[8];
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) h[j] = l[j] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            for (int k = 0; k < 5; ++k) fetch(lines, 4 + 5 * i + k);
            const __m512i high = line(lines, 8 + 5 * i);
            const __m512i shifted[4] = {_mm512_slli_epi32(high, 3), _mm512_slli_epi32(high, 1),
                                        _mm512_srli_epi32(high, 1), _mm512_srli_epi32(high, 3)};
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) {
                const __m512i v = line(lines, 4 + 5 * i + k);
                const __m512i easy = _mm512_and_si512(v, splat8(0xf8));
                const __m512i hard =
                    _mm512_and_si512(select(splat8(7), v, shifted[k]), splat8(0x1f));
                h[k] = _mm512_dpbusd_epi32(h[k], easy, dword(hi, 8 * k + i));
                l[k] = _mm512_dpbusd_epi32(l[k], easy, dword(lo, 8 * k + i));
                h[4 + k] = _mm512_dpbusd_epi32(h[4 + k], hard, dword(hi, 32 + 8 * k + i));
                l[4 + k] = _mm512_dpbusd_epi32(l[4 + k], hard, dword(lo, 32 + 8 * k + i));
            }
        }
        for (int i = 0; i < 4; ++i) fetch(lines, i);
        const __m512i th = scaled(h, sm);
        const __m512i tl = scaled(l, sm);
        return finish_mins(lines, th, tl, m, s, acc);
    }

    static __m512i scaled(const __m512i x[8], const ScaleMins& sm) {
        const __m512 e01 = pair<0>(x[0], x[1], sm.s03), e23 = pair<2>(x[2], x[3], sm.s03);
        const __m512 h01 = pair<0>(x[4], x[5], sm.s47), h23 = pair<2>(x[6], x[7], sm.s47);
        const __m512i easy = _mm512_add_epi32(_mm512_cvtps_epi32(e01), _mm512_cvtps_epi32(e23));
        const __m512i hard = _mm512_add_epi32(_mm512_cvtps_epi32(h01), _mm512_cvtps_epi32(h23));
        return _mm512_add_epi32(hard, _mm512_srai_epi32(easy, 3));
    }
    template <int k>
    static __m512 pair(__m512i a, __m512i b, __m512i scales) {
        return _mm512_fmadd_ps(byte_to_f32<k>(scales), _mm512_cvtepi32_ps(a),
                               _mm512_mul_ps(byte_to_f32<k + 1>(scales), _mm512_cvtepi32_ps(b)));
    }
};

// ---- Q6_K and Q8_0: sums start at -offset * (sum of q), which makes unsigned weights signed
// ------

// S = 256 * h + l of N sub-blocks, each times -factor.
template <int N>
struct Offsets {
    int32_t h[N], l[N];
};
template <int N>
static inline void set_offset(Offsets<N>& out, int j, int32_t s, int32_t factor) {
    const auto low = static_cast<int8_t>(s);
    out.l[j] = -factor * low;
    out.h[j] = -factor * ((s - low) >> 8);
}

struct VectorQ6_K {
    using Block = BlockQ6_K;
    using Prepared = Offsets<16>;
    static Prepared prepare(const int32_t* sums) {
        Prepared out;
        // Weights in the top bits (k = 0 and 3) count 4 times.
        for (int j = 0; j < 16; ++j) set_offset(out, j, sums[j], j < 4 || j >= 12 ? 128 : 32);
        return out;
    }

    // Sums of whole sub-blocks times their scales; those of weights that count 4 times apart.
    struct Totals {
        __m512i th1, tl1, th4, tl4;
    };
    template <uint32_t G>
    static void step(const uint8_t* const (&lines)[G], const uint8_t* const (&d)[G],
                     const int8_t* hi, const int8_t* lo, const Prepared& prepared, float s,
                     __m512 (&acc)[G]) {
        const __m512i zero = _mm512_setzero_si512();
        Totals sum[G];
#pragma GCC unroll 2
        for (uint32_t g = 0; g < G; ++g) {
            sum[g] = {zero, zero, zero, zero};
            for (int i = 0; i < 4; ++i) fetch(lines[g], i);
        }
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) {
            __m512i h[G][4], l[G][4];
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 2
                for (uint32_t g = 0; g < G; ++g) {
                    h[g][k] = _mm512_set1_epi32(prepared.h[4 * k + part]);
                    l[g][k] = _mm512_set1_epi32(prepared.l[4 * k + part]);
                }
            }
#pragma GCC unroll 4
            for (int i = 4 * part; i < 4 * part + 4; ++i) {
                __m512i w[G][4];
#pragma GCC unroll 2
                for (uint32_t g = 0; g < G; ++g) {
                    for (int k = 0; k < 3; ++k) fetch(lines[g], 4 + 3 * i + k);
                    unpack(lines[g], i, w[g]);
                }
#pragma GCC unroll 4
                for (int k = 0; k < 4; ++k) {
                    const __m512i xh = dword(hi, 16 * k + i), xl = dword(lo, 16 * k + i);
#pragma GCC unroll 2
                    for (uint32_t g = 0; g < G; ++g) {
                        h[g][k] = _mm512_dpbusd_epi32(h[g][k], w[g][k], xh);
                        l[g][k] = _mm512_dpbusd_epi32(l[g][k], w[g][k], xl);
                    }
                }
            }
#pragma GCC unroll 2
            for (uint32_t g = 0; g < G; ++g) {
#pragma GCC unroll 4
                for (int k = 0; k < 4; ++k) {
                    const __m512i scale = _mm512_srai_epi32(
                        _mm512_slli_epi32(line(lines[g], k), static_cast<unsigned>(24 - 8 * part)),
                        24);
                    __m512i& th = k == 0 || k == 3 ? sum[g].th4 : sum[g].th1;
                    __m512i& tl = k == 0 || k == 3 ? sum[g].tl4 : sum[g].tl1;
                    th = _mm512_add_epi32(th, _mm512_mullo_epi32(scale, h[g][k]));
                    tl = _mm512_add_epi32(tl, _mm512_mullo_epi32(scale, l[g][k]));
                }
            }
        }
#pragma GCC unroll 2
        for (uint32_t g = 0; g < G; ++g) {
            const __m512i th = _mm512_add_epi32(sum[g].th1, _mm512_srai_epi32(sum[g].th4, 2));
            const __m512i tl = _mm512_add_epi32(sum[g].tl1, _mm512_srai_epi32(sum[g].tl4, 2));
            acc[g] = _mm512_fmadd_ps(_mm512_mul_ps(halves(d[g]), _mm512_set1_ps(s)), total(th, tl),
                                     acc[g]);
        }
    }

    // The unsigned weights of dword i of the four planes; those of 0 and 3 in the top bits.
    static void unpack(const uint8_t* lines, int i, __m512i (&w)[4]) {
        const auto at = static_cast<uint32_t>(4 + 3 * i);
        const __m512i v0 = line(lines, at), v1 = line(lines, at + 1), v2 = line(lines, at + 2);
        const __m512i top = select(splat8(0xc0), v1, _mm512_srli_epi32(v2, 2));
        w[0] = _mm512_and_si512(v0, splat8(0xfc));
        w[1] = _mm512_and_si512(v1, splat8(0x3f));
        w[2] = _mm512_and_si512(v2, splat8(0x3f));
        w[3] = _mm512_and_si512(select(splat8(0xf0), top, _mm512_slli_epi32(v0, 2)), splat8(0xfc));
    }
};

struct VectorQ8_0 {
    using Block = BlockQ8_0;
    using Prepared = Offsets<8>;
    static Prepared prepare(const int32_t* sums) {
        Prepared out;
        for (int j = 0; j < 8; ++j) set_offset(out, j, sums[2 * j] + sums[2 * j + 1], 128);
        return out;
    }

    // |I| is below 2^27: no need of total().
    template <uint32_t G>
    static void step(const uint8_t* const (&lines)[G], const uint8_t* const (&)[G],
                     const int8_t* hi, const int8_t* lo, const Prepared& prepared, float s,
                     __m512 (&acc)[G]) {
        const __m512 scale = _mm512_set1_ps(s);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            __m512i h[G], l[G];
#pragma GCC unroll 2
            for (uint32_t g = 0; g < G; ++g) {
                h[g] = _mm512_set1_epi32(prepared.h[j]);
                l[g] = _mm512_set1_epi32(prepared.l[j]);
            }
#pragma GCC unroll 8
            for (int i = 8 * j; i < 8 * j + 8; ++i) {
                const __m512i xh = dword(hi, i), xl = dword(lo, i);
#pragma GCC unroll 2
                for (uint32_t g = 0; g < G; ++g) {
                    const __m512i w = line(lines[g], 4 + i);
                    fetch(lines[g], 4 + i);
                    h[g] = _mm512_dpbusd_epi32(h[g], w, xh);
                    l[g] = _mm512_dpbusd_epi32(l[g], w, xl);
                }
            }
#pragma GCC unroll 2
            for (uint32_t g = 0; g < G; ++g) {
                const __m512 sum =
                    _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(h[g], 8), l[g]));
                acc[g] =
                    _mm512_fmadd_ps(_mm512_mul_ps(halves(lines[g] + 32 * j), scale), sum, acc[g]);
            }
        }
        for (uint32_t g = 0; g < G; ++g) {
            for (int i = 0; i < 4; ++i) fetch(lines[g], i);
        }
    }
};

// ---- all types
// -----------------------------------------------------------------------------------

// kCount groups of rows from `row` on, superblocks [from, from + count), side by side.
template <class Kernel, uint32_t kCount>
static inline void r16_groups(const Tile& t, const BlockForm& x,
                              const typename Kernel::Prepared* prepared, uint32_t from,
                              uint32_t count, uint64_t row, float* y) {
    using Block = typename Kernel::Block;
    const uint32_t blocks = t.cols / 256;
    const uint64_t group_bytes = r16_group_bytes<Block>(blocks);
    const uint64_t header = R16<Block>::header_bytes(blocks);
    const auto* group = reinterpret_cast<const uint8_t*>(t.weights) + row / 16 * group_bytes;
    const uint64_t rows = t.end_row - row;  // the last group's may be fewer than 16
    const uint64_t last = rows < kCount * kRowGroup ? rows - (kCount - 1) * kRowGroup : kRowGroup;
    const auto mask = static_cast<__mmask16>((1u << last) - 1);
    float* out = y + (row - t.first_row);
    __m512 acc[kCount];
    const uint8_t *lines[kCount], *d[kCount];
    for (uint32_t g = 0; g < kCount; ++g) {
        const auto lanes = g + 1 == kCount ? mask : static_cast<__mmask16>(0xffff);
        acc[g] = from == 0 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(lanes, out + 16 * g);
        d[g] = group + g * group_bytes + 32 * uint64_t{from};
        lines[g] =
            group + g * group_bytes + header + uint64_t{from} * R16<Block>::kBlockLines * kLine;
    }
    for (uint32_t b = 0; b < count; ++b) {
        Kernel::step(lines, d, x.hi + 256 * (from + b), x.lo + 256 * (from + b), prepared[b],
                     x.scales[from + b], acc);
        for (uint32_t g = 0; g < kCount; ++g) {
            lines[g] += R16<Block>::kBlockLines * kLine;
            d[g] += 32;
        }
    }
    for (uint32_t g = 0; g + 1 < kCount; ++g) _mm512_storeu_ps(out + 16 * g, acc[g]);
    _mm512_mask_storeu_ps(out + 16 * (kCount - 1), mask, acc[kCount - 1]);
}

template <class Kernel>
void r16_vector(const Tile& t, uint32_t column) {
    const uint32_t blocks = t.cols / 256;
    const BlockForm x = block_form(t.vectors, t.cols, column);
    float* y = t.y + column * t.y_stride;
    typename Kernel::Prepared prepared[kSegment];
    for (uint32_t from = 0; from < blocks; from += kSegment) {
        const uint32_t count = min_u32(kSegment, blocks - from);
        for (uint32_t b = 0; b < count; ++b)
            prepared[b] = Kernel::prepare(x.sums + 16 * (from + b));
        uint64_t row = t.first_row;
        for (; row + (kTogether - 1) * kRowGroup < t.end_row; row += kTogether * kRowGroup) {
            r16_groups<Kernel, kTogether>(t, x, prepared, from, count, row, y);
        }
        for (; row < t.end_row; row += kRowGroup) {
            r16_groups<Kernel, 1>(t, x, prepared, from, count, row, y);
        }
    }
}

// From here on unpacking once for all columns pays.
constexpr uint32_t kFewestWordColumns = 4;

template <class Kernel>
void r16_columns(const Tile& t) {
    if (t.columns >= kFewestWordColumns) return word_columns<typename Kernel::Block>(t);
    for (uint32_t c = 0; c < t.columns; ++c) r16_vector<Kernel>(t, c);
}

}  // namespace
}  // namespace muser::device::cpu
