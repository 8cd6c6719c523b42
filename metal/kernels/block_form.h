// Writing 16-bit block floating point (docs/numerics.md §1): one SIMD group, one block of 256,
// eight consecutive elements per lane. args.h says how the four sections lie in the buffer.
#pragma once

#include "reduce.h"

// The eight values of a lane. A struct, so that every language passes it the same way.
struct Eight {
    float v[8];
};

static inline Eight as_eight(float4 a, float4 b) {
    Eight out;
    out.v[0] = a.x;
    out.v[1] = a.y;
    out.v[2] = a.z;
    out.v[3] = a.w;
    out.v[4] = b.x;
    out.v[5] = b.y;
    out.v[6] = b.z;
    out.v[7] = b.w;
    return out;
}

static inline Eight load_eight(device const float* at) {
    return as_eight(*reinterpret_cast<device const float4*>(at),
                    *reinterpret_cast<device const float4*>(at + 4));
}

static inline void store_eight(device float* at, Eight x) {
    float4 a;
    float4 b;
    a.x = x.v[0];
    a.y = x.v[1];
    a.z = x.v[2];
    a.w = x.v[3];
    b.x = x.v[4];
    b.y = x.v[5];
    b.z = x.v[6];
    b.w = x.v[7];
    *reinterpret_cast<device float4*>(at) = a;
    *reinterpret_cast<device float4*>(at + 4) = b;
}

// Every lane of the SIMD group calls this, with elements 256 * block + 8 * lane ... + 7 of a vector
// of n.
static inline void write_block(device uchar* form, uint n, uint block, Eight x, uint lane) {
    uint largest = 0;
    for (uint i = 0; i < 8; ++i) largest = max(largest, MUSER_FLOAT_BITS(x.v[i]) & 0x7fffffffu);
    const uint u = simd_max(largest);

    float s = 0.0f;
    float inverse = 0.0f;
    if (u >= 0x7f800000u) {
        s = MUSER_BITS_FLOAT(0x7fc00000u);
    } else if (u >= 0x00800000u) {
        const int e = max(static_cast<int>((u + 0x10100u) >> 23) - 14, 1);
        s = MUSER_BITS_FLOAT(static_cast<uint>(e) << 23);
        inverse = MUSER_BITS_FLOAT(static_cast<uint>(254 - e) << 23);
    }

    int sum = 0;
    uint hi[2] = {0, 0};
    uint lo[2] = {0, 0};
    if (inverse != 0.0f) {
        for (uint i = 0; i < 8; ++i) {
            const int q = static_cast<int>(MUSER_RINT(x.v[i] * inverse));
            // q = 256 * high + low with low in [-128, 127]: adding 128 makes low's sign carry.
            const int high = (q + 128) >> 8;
            hi[i >> 2] |= (static_cast<uint>(high) & 255u) << (8 * (i & 3));
            lo[i >> 2] |= (static_cast<uint>(q) & 255u) << (8 * (i & 3));
            sum += q;
        }
    }
    sum += simd_shuffle_xor(sum, static_cast<ushort>(1));

    const uint first = MUSER_BLOCK * block + 8 * lane;
    uint2 packed;
    packed.x = hi[0];
    packed.y = hi[1];
    *reinterpret_cast<device uint2*>(form + first) = packed;
    packed.x = lo[0];
    packed.y = lo[1];
    *reinterpret_cast<device uint2*>(form + MUSER_BLOCK_LO(n) + first) = packed;
    if ((lane & 1) == 0) {
        device int* sums = reinterpret_cast<device int*>(form + MUSER_BLOCK_SUMS(n));
        sums[first / 16] = sum;
    }
    if (lane == 0) {
        device float* scales = reinterpret_cast<device float*>(form + MUSER_BLOCK_SCALES(n));
        scales[block] = s;
    }
}
