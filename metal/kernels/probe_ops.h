// The body of the load-time arithmetic probe: one row of cpp/contract/probe.h per thread. The same
// code runs as MSL, CUDA and C++, so that what is tested is the compiler and the chip.
#ifndef MUSER_KERNELS_PROBE_OPS_H
#define MUSER_KERNELS_PROBE_OPS_H

#include "math.h"

#define MUSER_PROBE_MUL 0u            // a * b
#define MUSER_PROBE_ADD 1u            // a + b
#define MUSER_PROBE_MUL_ADD 2u        // a * b + c, not to be contracted
#define MUSER_PROBE_MUL_SUB 3u        // c - a * b, not to be contracted
#define MUSER_PROBE_FMA 4u            // fma(a, b, c)
#define MUSER_PROBE_FMA_NEG 5u        // fma(a, b, -(c * b)): RoPE's shape
#define MUSER_PROBE_DIV 6u            // a / b
#define MUSER_PROBE_SQRT 7u           // sqrt(a)
#define MUSER_PROBE_RINT 8u           // rint(a)
#define MUSER_PROBE_INT 9u            // f32 of the int a
#define MUSER_PROBE_WIDE_INT 10u      // f32 of 256 * a + b by the wide rule
#define MUSER_PROBE_FLOAT_TO_INT 11u  // int of rint(a)
#define MUSER_PROBE_FROM_HALF 12u     // f32 of the f16 bits a
#define MUSER_PROBE_TO_HALF 13u       // f16 bits of a
#define MUSER_PROBE_EXP 14u
#define MUSER_PROBE_TANH 15u
#define MUSER_PROBE_SIGMOID 16u
#define MUSER_PROBE_SILU_MUL 17u  // silu(a) * b
#define MUSER_PROBE_SUM3 18u      // (a + b) + c, not to be reassociated
#define MUSER_PROBE_LESS 19u      // a < b ? 1 : 0

// T = 256 * th + tl to f32 (docs/numerics.md §0).
MUSER_FN float muser_wide_to_float(int th, int tl) {
    int a = (th >> 8) + (tl >> 16);
    int b = ((th & 255) << 8) + (tl & 65535);
    return MUSER_FMA(static_cast<float>(a), 65536.0f, static_cast<float>(b));
}

// NaN bit patterns differ between devices: one pattern stands for all.
MUSER_FN unsigned int muser_probe_bits(float x) {
    return x != x ? 0x7fc00000u : MUSER_FLOAT_BITS(x);
}

MUSER_FN unsigned int muser_probe_op(unsigned int op, unsigned int a, unsigned int b,
                                     unsigned int c) {
    float x = MUSER_BITS_FLOAT(a);
    float y = MUSER_BITS_FLOAT(b);
    float z = MUSER_BITS_FLOAT(c);
    switch (op) {
        case MUSER_PROBE_MUL:
            return muser_probe_bits(x * y);
        case MUSER_PROBE_ADD:
            return muser_probe_bits(x + y);
        case MUSER_PROBE_MUL_ADD:
            return muser_probe_bits(x * y + z);
        case MUSER_PROBE_MUL_SUB:
            return muser_probe_bits(z - x * y);
        case MUSER_PROBE_FMA:
            return muser_probe_bits(MUSER_FMA(x, y, z));
        case MUSER_PROBE_FMA_NEG:
            return muser_probe_bits(MUSER_FMA(x, y, -(z * y)));
        case MUSER_PROBE_DIV:
            return muser_probe_bits(x / y);
        case MUSER_PROBE_SQRT:
            return muser_probe_bits(MUSER_SQRT(x));
        case MUSER_PROBE_RINT:
            return muser_probe_bits(MUSER_RINT(x));
        case MUSER_PROBE_INT:
            return muser_probe_bits(static_cast<float>(static_cast<int>(a)));
        case MUSER_PROBE_WIDE_INT:
            return muser_probe_bits(muser_wide_to_float(static_cast<int>(a), static_cast<int>(b)));
        case MUSER_PROBE_FLOAT_TO_INT:
            return static_cast<unsigned int>(static_cast<int>(MUSER_RINT(x)));
        case MUSER_PROBE_FROM_HALF:
            return muser_probe_bits(MUSER_HALF_BITS_FLOAT(a));
        case MUSER_PROBE_TO_HALF:
            return MUSER_FLOAT_HALF_BITS(x);
        case MUSER_PROBE_EXP:
            return muser_probe_bits(muser_exp(x));
        case MUSER_PROBE_TANH:
            return muser_probe_bits(muser_tanh(x));
        case MUSER_PROBE_SIGMOID:
            return muser_probe_bits(muser_sigmoid(x));
        case MUSER_PROBE_SILU_MUL:
            return muser_probe_bits(muser_silu_mul(x, y));
        case MUSER_PROBE_SUM3:
            return muser_probe_bits((x + y) + z);
        case MUSER_PROBE_LESS:
            return x < y ? 1u : 0u;
        default:
            return 0xdeadbeefu;
    }
}

#endif  // MUSER_KERNELS_PROBE_OPS_H
