// Weights and KV elements of the float types as f32, exactly (docs/numerics.md §0).
#pragma once

#include "block_form.h"

struct WeightF32 {
    typedef float Stored;
    static inline float load(float stored) { return stored; }
};
struct WeightF16 {
    typedef ushort Stored;
    static inline float load(ushort stored) { return MUSER_HALF_BITS_FLOAT(stored); }
};
struct WeightBF16 {
    typedef ushort Stored;
    static inline float load(ushort stored) {
        return MUSER_BITS_FLOAT(static_cast<uint>(stored) << 16);
    }
};

// KV plane elements. load_eight reads eight neighbours with 16-byte loads.
struct PlaneF32 {
    typedef float Stored;
    static inline float load(float stored) { return stored; }
    static inline float store(float value) { return value; }
    static inline Eight load_eight_at(device const float* at) { return load_eight(at); }
};
struct PlaneF16 {
    typedef ushort Stored;
    static inline float load(ushort stored) { return MUSER_HALF_BITS_FLOAT(stored); }
    static inline ushort store(float value) {
        return static_cast<ushort>(MUSER_FLOAT_HALF_BITS(value));
    }
    static inline Eight load_eight_at(device const ushort* at) {
        const uint4 packed = *reinterpret_cast<device const uint4*>(at);
        const uint words[4] = {packed.x, packed.y, packed.z, packed.w};
        Eight out;
        for (uint i = 0; i < 4; ++i) {
            out.v[2 * i] = MUSER_HALF_BITS_FLOAT(words[i] & 0xffffu);
            out.v[2 * i + 1] = MUSER_HALF_BITS_FLOAT(words[i] >> 16);
        }
        return out;
    }
};
