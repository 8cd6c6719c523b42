// Products of one superblock of quantised weights with 256 block-form activations (docs/numerics.md
// §2), by a cluster of eight lanes, and single weights for the embedding.
//
// A lane holds 16 bytes of packed quants, that is 32 weights in two runs of 16. Which runs depends
// on the type; `first` and `second` say where they begin in the superblock. Everything up to the
// totals T and M is integer and exact, so lanes and order are free; then each type's `step` makes
// the one or two fused multiply-adds of the contract. All eight lanes end with the same value.
#pragma once

#include "block_form.h"

// What a lane reads of one activation block; shared by all rows that meet it.
struct Activations {
    uint4 hi[2];  // of the first and the second run
    uint4 lo[2];
    int sum[2];
    float s;
};

// Products of a run: 256 * high + low is the exact sum of w * q.
struct RunSum {
    int high;
    int low;
};

static inline RunSum run_product(uint4 w, uint4 hi, uint4 lo) {
    RunSum out;
    out.high = dot4(w.x, hi.x, dot4(w.y, hi.y, dot4(w.z, hi.z, dot4(w.w, hi.w, 0))));
    out.low = dot4(w.x, lo.x, dot4(w.y, lo.y, dot4(w.z, lo.z, dot4(w.w, lo.w, 0))));
    return out;
}

static inline uint4 make_words(uint x, uint y, uint z, uint w) {
    uint4 out;
    out.x = x;
    out.y = y;
    out.z = z;
    out.w = w;
    return out;
}
// (v >> shift) & mask, per word.
static inline uint4 field(uint4 v, uint shift, uint mask) {
    return make_words((v.x >> shift) & mask, (v.y >> shift) & mask, (v.z >> shift) & mask,
                      (v.w >> shift) & mask);
}
static inline uint4 merge(uint4 a, uint4 b, uint shift) {
    return make_words(a.x | (b.x << shift), a.y | (b.y << shift), a.z | (b.z << shift),
                      a.w | (b.w << shift));
}

// 16 bytes whose address is even only: Q6_K and Q8_0 blocks have odd multiples of 2 bytes.
static inline uint4 load_even(device const uchar* at) {
    device const ushort* h = reinterpret_cast<device const ushort*>(at);
    return make_words(
        h[0] | (static_cast<uint>(h[1]) << 16), h[2] | (static_cast<uint>(h[3]) << 16),
        h[4] | (static_cast<uint>(h[5]) << 16), h[6] | (static_cast<uint>(h[7]) << 16));
}
static inline uint4 load_words(device const uchar* at) {
    return *reinterpret_cast<device const uint4*>(at);
}
static inline int signed_byte(uint byte) { return (static_cast<int>(byte) ^ 128) - 128; }
static inline float load_half(device const uchar* at) {
    return MUSER_HALF_BITS_FLOAT(*reinterpret_cast<device const ushort*>(at));
}

// The 6-bit scales and mins of sub-blocks 2c and 2c + 1 from the 12 packed bytes (three words).
struct ScalePair {
    int scale[2];
    int min[2];
};
static inline ScalePair unpack_scales(uint w0, uint w1, uint w2, uint c) {
    uint scales = w0 & 0x3f3f3f3fu;
    uint mins = w1 & 0x3f3f3f3fu;
    if (c >= 2) {
        scales = (w2 & 0x0f0f0f0fu) | ((w0 >> 2) & 0x30303030u);
        mins = ((w2 >> 4) & 0x0f0f0f0fu) | ((w1 >> 2) & 0x30303030u);
    }
    const uint shift = 16 * (c & 1);
    ScalePair out;
    out.scale[0] = static_cast<int>((scales >> shift) & 255u);
    out.scale[1] = static_cast<int>((scales >> (shift + 8)) & 255u);
    out.min[0] = static_cast<int>((mins >> shift) & 255u);
    out.min[1] = static_cast<int>((mins >> (shift + 8)) & 255u);
    return out;
}

// acc after one superblock whose lanes hold parts of T (256 * high + low) and M.
static inline float step_with_mins(float acc, RunSum t, int m, float d, float dmin, float s) {
    const float total = wide_to_float(cluster_sum(t.high), cluster_sum(t.low));
    const int sum = cluster_sum(m);
    acc = MUSER_FMA(d * s, total, acc);
    // |M| < 2^30: the wide rule with TH = M div 256 is one exact way to its f32.
    return MUSER_FMA(-(dmin * s), wide_to_float(sum >> 8, sum & 255), acc);
}

struct Q4K {
    enum { kBytes = 144, kSums = 1 };
    static inline uint first(uint part) { return 64 * (part / 2) + 16 * (part & 1); }
    static inline uint second(uint part) { return first(part) + 32; }

    static inline float step(float acc, device const uchar* block, uint part, uint /*lane*/,
                             thread const Activations& x) {
        const uint4 head = load_words(block);
        const ScalePair pair = unpack_scales(head.y, head.z, head.w, part / 2);
        const uint4 packed = load_words(block + 16 + 16 * part);
        const RunSum a = run_product(field(packed, 0, 0x0f0f0f0fu), x.hi[0], x.lo[0]);
        const RunSum b = run_product(field(packed, 4, 0x0f0f0f0fu), x.hi[1], x.lo[1]);
        RunSum t;
        t.high = pair.scale[0] * a.high + pair.scale[1] * b.high;
        t.low = pair.scale[0] * a.low + pair.scale[1] * b.low;
        const int m = pair.min[0] * x.sum[0] + pair.min[1] * x.sum[1];
        return step_with_mins(acc, t, m, MUSER_HALF_BITS_FLOAT(head.x & 0xffffu),
                              MUSER_HALF_BITS_FLOAT(head.x >> 16), x.s);
    }

    static inline float weight(device const uchar* block, uint i) {
        const uint j = i / 32;
        const uint4 head = load_words(block);
        const ScalePair pair = unpack_scales(head.y, head.z, head.w, j / 2);
        const uint byte = block[16 + 32 * (j / 2) + (i & 31)];
        const int q = static_cast<int>((byte >> (4 * (j & 1))) & 15u);
        const float d = MUSER_HALF_BITS_FLOAT(head.x & 0xffffu);
        const float dmin = MUSER_HALF_BITS_FLOAT(head.x >> 16);
        return (d * static_cast<float>(pair.scale[j & 1])) * static_cast<float>(q) -
               dmin * static_cast<float>(pair.min[j & 1]);
    }
};

struct Q5K {
    enum { kBytes = 176, kSums = 1 };
    static inline uint first(uint part) { return 64 * (part / 2) + 16 * (part & 1); }
    static inline uint second(uint part) { return first(part) + 32; }

    static inline float step(float acc, device const uchar* block, uint part, uint /*lane*/,
                             thread const Activations& x) {
        const uint4 head = load_words(block);
        const uint c = part / 2;
        const ScalePair pair = unpack_scales(head.y, head.z, head.w, c);
        const uint4 top = load_words(block + 16 + 16 * (part & 1));
        const uint4 packed = load_words(block + 48 + 16 * part);
        const uint4 wa = merge(field(packed, 0, 0x0f0f0f0fu), field(top, 2 * c, 0x01010101u), 4);
        const uint4 wb =
            merge(field(packed, 4, 0x0f0f0f0fu), field(top, 2 * c + 1, 0x01010101u), 4);
        const RunSum a = run_product(wa, x.hi[0], x.lo[0]);
        const RunSum b = run_product(wb, x.hi[1], x.lo[1]);
        RunSum t;
        t.high = pair.scale[0] * a.high + pair.scale[1] * b.high;
        t.low = pair.scale[0] * a.low + pair.scale[1] * b.low;
        const int m = pair.min[0] * x.sum[0] + pair.min[1] * x.sum[1];
        return step_with_mins(acc, t, m, MUSER_HALF_BITS_FLOAT(head.x & 0xffffu),
                              MUSER_HALF_BITS_FLOAT(head.x >> 16), x.s);
    }

    static inline float weight(device const uchar* block, uint i) {
        const uint j = i / 32;
        const uint4 head = load_words(block);
        const ScalePair pair = unpack_scales(head.y, head.z, head.w, j / 2);
        const uint byte = block[48 + 32 * (j / 2) + (i & 31)];
        const uint top = (static_cast<uint>(block[16 + (i & 31)]) >> j) & 1u;
        const int q = static_cast<int>(((byte >> (4 * (j & 1))) & 15u) | (top << 4));
        const float d = MUSER_HALF_BITS_FLOAT(head.x & 0xffffu);
        const float dmin = MUSER_HALF_BITS_FLOAT(head.x >> 16);
        return (d * static_cast<float>(pair.scale[j & 1])) * static_cast<float>(q) -
               dmin * static_cast<float>(pair.min[j & 1]);
    }
};

// Lane `part` = 4n + 2j + h has the low and high nibbles of ql[16 part ...]: elements 128n + 32j +
// 16h and 64 further.
struct Q6K {
    enum { kBytes = 210, kSums = 1 };
    static inline uint first(uint part) {
        return 128 * (part / 4) + 32 * ((part / 2) & 1) + 16 * (part & 1);
    }
    static inline uint second(uint part) { return first(part) + 64; }

    static inline float step(float acc, device const uchar* block, uint part, uint /*lane*/,
                             thread const Activations& x) {
        const uint n = part / 4;
        const uint j = (part / 2) & 1;
        const uint h = part & 1;
        const uint4 packed = load_even(block + 16 * part);
        const uint4 top = load_even(block + 128 + 32 * n + 16 * h);
        const uint4 wa = merge(field(packed, 0, 0x0f0f0f0fu), field(top, 2 * j, 0x03030303u), 4);
        const uint4 wb =
            merge(field(packed, 4, 0x0f0f0f0fu), field(top, 4 + 2 * j, 0x03030303u), 4);
        RunSum a = run_product(wa, x.hi[0], x.lo[0]);
        RunSum b = run_product(wb, x.hi[1], x.lo[1]);
        // The weight is q - 32; the run's sum of activations is stored.
        a.low -= 32 * x.sum[0];
        b.low -= 32 * x.sum[1];
        const int scale_a = signed_byte(block[192 + 8 * n + 2 * j + h]);
        const int scale_b = signed_byte(block[192 + 8 * n + 4 + 2 * j + h]);
        // Keep both parts small: low may exceed 2^16 by far after the 32s.
        a.high += a.low >> 8;
        a.low &= 255;
        b.high += b.low >> 8;
        b.low &= 255;
        const int high = cluster_sum(scale_a * a.high + scale_b * b.high);
        const int low = cluster_sum(scale_a * a.low + scale_b * b.low);
        const float d = load_half(block + 208);
        return MUSER_FMA(d * x.s, wide_to_float(high, low), acc);
    }

    static inline float weight(device const uchar* block, uint i) {
        const uint n = i / 128;
        const uint k = (i / 32) & 3;  // which quarter of the half: nibble and bit pair
        const uint l = i & 31;
        const uint byte = block[64 * n + 32 * (k & 1) + l];
        const uint top = (static_cast<uint>(block[128 + 32 * n + l]) >> (2 * k)) & 3u;
        const int q = static_cast<int>(((byte >> (4 * (k / 2))) & 15u) | (top << 4)) - 32;
        const int scale = signed_byte(block[192 + i / 16]);
        return (load_half(block + 208) * static_cast<float>(scale)) * static_cast<float>(q);
    }
};

// Eight blocks of 32, one per lane; each is one step of the chain, in order.
struct Q80 {
    enum { kBytes = 272, kSums = 0 };
    static inline uint first(uint part) { return 32 * part; }
    static inline uint second(uint part) { return first(part) + 16; }

    static inline float step(float acc, device const uchar* block, uint part, uint lane,
                             thread const Activations& x) {
        device const uchar* mine = block + 34 * part;
        const RunSum a = run_product(load_even(mine + 2), x.hi[0], x.lo[0]);
        const RunSum b = run_product(load_even(mine + 18), x.hi[1], x.lo[1]);
        const float total = wide_to_float(a.high + b.high, a.low + b.low);
        const float scale = load_half(mine) * x.s;
        const uint cluster = lane & ~7u;
        for (uint i = 0; i < 8; ++i) {
            const ushort from = static_cast<ushort>(cluster + i);
            acc = MUSER_FMA(simd_shuffle(scale, from), simd_shuffle(total, from), acc);
        }
        return acc;
    }

    static inline float weight(device const uchar* block, uint i) {
        device const uchar* mine = block + 34 * (i / 32);
        const int q = signed_byte(mine[2 + (i & 31)]);
        return load_half(mine) * static_cast<float>(q);
    }
};

// Reads activation block b of a form of n elements for this lane's part.
template <typename Type>
static inline Activations load_activations(device const uchar* form, uint n, uint b, uint part) {
    const uint base = MUSER_BLOCK * b;
    const uint at[2] = {base + Type::first(part), base + Type::second(part)};
    device const int* sums = reinterpret_cast<device const int*>(form + MUSER_BLOCK_SUMS(n));
    device const float* s = reinterpret_cast<device const float*>(form + MUSER_BLOCK_SCALES(n));
    Activations x;
    for (uint run = 0; run < 2; ++run) {
        x.hi[run] = load_words(form + at[run]);
        x.lo[run] = load_words(form + MUSER_BLOCK_LO(n) + at[run]);
        x.sum[run] = Type::kSums != 0 ? sums[at[run] / 16] : 0;
    }
    x.s = s[b];
    return x;
}
