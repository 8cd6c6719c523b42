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

// Groups of rows that are multiplied side by side: they share the broadcast activations, and their
// sums are chains that do not wait for each other. In the caches two take 150 cycles for a Q4_K
// superblock of 16 rows where one takes 170; its multiplications and masks alone fill 141.
constexpr uint32_t kTogether = 2;

// Groups of rows that are read side by side, a superblock of each in turn: as many streams as a
// plain read needs to be fastest. The processor's own prefetcher follows a stream to the end of its
// page of 4 KiB, so that of two streams one is always starting again. Shares of the plain read rate
// on a Sapphire Rapids core, Q4_K and Q6_K: 2 streams 0.92 and 0.88, 4 streams 1.02 and 0.96, 8
// streams 0.99 and 0.96, and faster than 4 while others use the memory.
constexpr uint32_t kStreams = 8;

// The streams' next superblock, asked for line by line while this one is multiplied: a step has a
// slot for every line it multiplies, and slot n asks for the next line of stream n % kCount, so
// that all streams move on together and evenly in time, which is what a plain read does. Into the
// first cache: both superblocks of all streams fit.
template <uint32_t kCount>
struct NextBlock {
    const uint8_t* lines;  // of the first stream
    uint64_t stride;       // bytes to the next one

    // An asm statement stays where it is written. A compiler gathers _mm_prefetch at the start of
    // the step, where the requests fill every buffer there is and are missing for the rest of it:
    // 0.91 and 0.76 instead of 0.99 and 0.96.
    void fetch(uint32_t slot) const {
        const uint8_t* at = lines + slot % kCount * stride + slot / kCount * kLine;
        asm volatile("prefetcht0 %0" : : "m"(*at));
    }
};

static inline __m512i line(const uint8_t* lines, uint32_t index) {
    return _mm512_load_si512(lines + kLine * index);
}
static inline void touch(const void* data) {
    _mm_prefetch(static_cast<const char*>(data), _MM_HINT_T0);
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
// The sums of neighbours, in the low dwords.
static inline __m256i pair_sums(__m512i sums) {
    return _mm512_cvtepi64_epi32(_mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32)));
}
static inline MinPlanes min_planes(const int32_t sums[16]) {
    MinPlanes out;
    __m256i s = pair_sums(_mm512_loadu_si512(sums));
    for (int p = 0; p < 3; ++p) {
        _mm_storeu_si64(out.plane[p], _mm256_cvtepi32_epi8(s));
        const __m256i low = _mm256_srai_epi32(_mm256_slli_epi32(s, 24), 24);
        s = _mm256_srai_epi32(_mm256_sub_epi32(s, low), 8);
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
    template <uint32_t G, class Next>
    static void step(const Next& next, const uint8_t* const (&lines)[G],
                     const uint8_t* const (&)[G], const int8_t* hi, const int8_t* lo,
                     const Prepared& prepared, float s, __m512 (&acc)[G]) {
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
                    next.fetch(G * (8 * c + i) + g);
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
            for (int i = 32; i < 36; ++i) next.fetch(G * i + g);
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
    template <uint32_t G, class Next>
    static void step(const Next& next, const uint8_t* const (&lines)[G],
                     const uint8_t* const (&)[G], const int8_t* hi, const int8_t* lo,
                     const Prepared& prepared, float s, __m512 (&acc)[G]) {
#pragma GCC unroll 2
        for (uint32_t g = 0; g < G; ++g) {
            acc[g] = group(next, 44 * g, lines[g], hi, lo, prepared, s, acc[g]);
        }
    }
    template <class Next>
    static __m512 group(const Next& next, uint32_t slot, const uint8_t* lines, const int8_t* hi,
                        const int8_t* lo, const Prepared& prepared, float s, __m512 acc) {
        const ScaleMins sm = scale_mins(lines);
        const __m512i m = min_sums(sm, prepared);
        __m512i h[8], l[8];
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) h[j] = l[j] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            for (int k = 0; k < 5; ++k) next.fetch(slot + 5 * i + k);
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
        for (int i = 40; i < 44; ++i) next.fetch(slot + i);
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
static inline Offsets<N> offsets(__m512i s, __m512i minus_factor) {
    Offsets<N> out;
    const auto lanes = static_cast<__mmask16>((1u << N) - 1);
    const __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(s, 24), 24);
    const __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(s, low), 8);
    _mm512_mask_storeu_epi32(out.h, lanes, _mm512_mullo_epi32(high, minus_factor));
    _mm512_mask_storeu_epi32(out.l, lanes, _mm512_mullo_epi32(low, minus_factor));
    return out;
}

struct VectorQ6_K {
    using Block = BlockQ6_K;
    using Prepared = Offsets<16>;
    // Weights in the top bits (k = 0 and 3) count 4 times.
    static Prepared prepare(const int32_t* sums) {
        const __m512i factor =
            _mm512_mask_mov_epi32(_mm512_set1_epi32(-32), 0xf00f, _mm512_set1_epi32(-128));
        return offsets<16>(_mm512_loadu_si512(sums), factor);
    }

    // Sums of whole sub-blocks times their scales; those of weights that count 4 times apart.
    struct Totals {
        __m512i th1, tl1, th4, tl4;
    };
    template <uint32_t G, class Next>
    static void step(const Next& next, const uint8_t* const (&lines)[G],
                     const uint8_t* const (&d)[G], const int8_t* hi, const int8_t* lo,
                     const Prepared& prepared, float s, __m512 (&acc)[G]) {
        const __m512i zero = _mm512_setzero_si512();
        Totals sum[G];
#pragma GCC unroll 2
        for (uint32_t g = 0; g < G; ++g) {
            sum[g] = {zero, zero, zero, zero};
            for (int i = 0; i < 4; ++i) next.fetch(G * i + g);
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
                    for (int k = 0; k < 3; ++k) next.fetch(G * (4 + 3 * i + k) + g);
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
        const __m256i pairs = pair_sums(_mm512_loadu_si512(sums));
        return offsets<8>(_mm512_zextsi256_si512(pairs), _mm512_set1_epi32(-128));
    }

    // |I| is below 2^27: no need of total().
    template <uint32_t G, class Next>
    static void step(const Next& next, const uint8_t* const (&lines)[G],
                     const uint8_t* const (&)[G], const int8_t* hi, const int8_t* lo,
                     const Prepared& prepared, float s, __m512 (&acc)[G]) {
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
                    next.fetch(G * i + g);
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
            for (int i = 64; i < 68; ++i) next.fetch(G * i + g);
        }
    }
};

// ---- all types
// -----------------------------------------------------------------------------------

// What the next superblock's steps will read besides weights, part `part` of kParts of it: streams
// of weights push it out of the first cache, and from the second it comes late, behind them.
template <uint32_t kParts, class Prepared>
static inline void fetch_activations(const BlockForm& x, uint32_t block, const Prepared& prepared,
                                     uint32_t part) {
    constexpr uint32_t kPlane = 256 / kLine / kParts;
    static_assert(kPlane * kParts * kLine == 256);
    for (uint32_t i = part * kPlane; i < (part + 1) * kPlane; ++i) {
        touch(x.hi + 256 * block + kLine * i);
        touch(x.lo + 256 * block + kLine * i);
    }
    if (part != 0) return;
    touch(x.scales + block);
    for (uint32_t i = 0; i < sizeof prepared; i += kLine) {
        touch(reinterpret_cast<const uint8_t*>(&prepared) + i);
    }
}

// kCount groups of rows from `row` on, superblocks [from, from + count): kWidth of them side by
// side, a superblock of all before the next of any.
template <class Kernel, uint32_t kWidth, uint32_t kCount>
static inline void r16_groups(const Tile& t, const BlockForm& x,
                              const typename Kernel::Prepared* prepared, uint32_t from,
                              uint32_t count, uint64_t row, float* y) {
    using Layout = R16<typename Kernel::Block>;
    constexpr uint64_t kBlockBytes = Layout::kBlockLines * kLine;
    constexpr uint32_t kSteps = kCount / kWidth;
    static_assert(kSteps * kWidth == kCount && Layout::kBlockLines % kSteps == 0);
    const uint32_t blocks = t.cols / 256;
    const uint64_t group_bytes = r16_group_bytes<typename Kernel::Block>(blocks);
    const auto* group = reinterpret_cast<const uint8_t*>(t.weights) + row / 16 * group_bytes;
    const uint64_t rows = t.end_row - row;  // the last group's may be fewer than 16
    const uint64_t last = rows < kCount * kRowGroup ? rows - (kCount - 1) * kRowGroup : kRowGroup;
    const auto mask = static_cast<__mmask16>((1u << last) - 1);
    float* out = y + (row - t.first_row);
    __m512 acc[kCount];
    for (uint32_t g = 0; g < kCount; ++g) {
        const auto lanes = g + 1 == kCount ? mask : static_cast<__mmask16>(0xffff);
        acc[g] = from == 0 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(lanes, out + 16 * g);
    }
    const uint8_t* at = group + Layout::header_bytes(blocks) + from * kBlockBytes;
    const uint8_t* d_at = group + 32 * uint64_t{from};
    // What is read after the last superblock: most often the groups that follow.
    const bool more = row + 2 * kCount * kRowGroup <= t.rows;
    const uint8_t* const then = more ? at + kCount * group_bytes : at;
    uint32_t b = 0, step = 0;
    NextBlock<kCount> next = {count == 1 ? then : at + kBlockBytes, group_bytes};
    // One loop, which no compiler unrolls.
    for (uint32_t left = count * kSteps; left != 0; --left) {
        const uint8_t *lines[kWidth], *d[kWidth];
        for (uint32_t g = 0; g < kWidth; ++g) {
            lines[g] = at + g * group_bytes;
            d[g] = d_at + g * group_bytes;
            // A line in two superblocks: too few for any prefetcher to notice.
            if (Layout::header_bytes(1) != 0) touch(d[g] + kCount * group_bytes);
        }
        Kernel::step(next, lines, d, x.hi + 256 * (from + b), x.lo + 256 * (from + b), prepared[b],
                     x.scales[from + b], *reinterpret_cast<__m512(*)[kWidth]>(acc + kWidth * step));
        const uint32_t after = b + 1 == count ? 0 : b + 1;
        fetch_activations<kSteps>(x, from + after, prepared[after], step);
        next.lines += Layout::kBlockLines / kSteps * kLine;
        at += kWidth * group_bytes;
        d_at += kWidth * group_bytes;
        if (++step != kSteps) continue;
        step = 0;
        ++b;
        at += kBlockBytes - kCount * group_bytes;
        d_at += 32 - kCount * group_bytes;
        if (b + 1 == count) next.lines = then;
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
        for (; row + (kStreams - 1) * kRowGroup < t.end_row; row += kStreams * kRowGroup) {
            r16_groups<Kernel, kTogether, kStreams>(t, x, prepared, from, count, row, y);
        }
        for (; row + (kTogether - 1) * kRowGroup < t.end_row; row += kTogether * kRowGroup) {
            r16_groups<Kernel, kTogether, kTogether>(t, x, prepared, from, count, row, y);
        }
        for (; row < t.end_row; row += kRowGroup) {
            r16_groups<Kernel, 1, 1>(t, x, prepared, from, count, row, y);
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
