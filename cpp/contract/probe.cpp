// The probe's table. Expected bits come from exact rational arithmetic, rounded once per operation
// by the rules of docs/numerics.md §0 and §7, not from running this code.
#include "contract/probe.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "contract/ftz.h"
#include "errors.h"
#include "metal/kernels/probe_ops.h"

namespace muser::contract {
namespace {

// clang-format off
constexpr ProbeRow kRows[] = {
    {"contraction: a * b + c", MUSER_PROBE_MUL_ADD, 0x3f800800u, 0x3f800800u, 0xbf801000u, 0x00000000u},
    {"contraction: c - a * b", MUSER_PROBE_MUL_SUB, 0x3f800800u, 0x3f800800u, 0x3f801000u, 0x00000000u},
    {"contraction: a * b + c, inexact", MUSER_PROBE_MUL_ADD, 0x3f2d4cf5u, 0xbf6b0a33u, 0xbe90051du, 0xbf671f1au},
    {"contraction: c - a * b, inexact", MUSER_PROBE_MUL_SUB, 0x3f2d4cf5u, 0xbf6b0a33u, 0xbe90051du, 0x3eae33fbu},
    {"reassociation: (a + b) + c", MUSER_PROBE_SUM3, 0x4e800000u, 0xce800000u, 0x3f800000u, 0x3f800000u},
    {"reassociation: (a + b) + c, left first", MUSER_PROBE_SUM3, 0x3f800000u, 0x4e800000u, 0xce800000u, 0x00000000u},
    {"product rounds to nearest even", MUSER_PROBE_MUL, 0x3f800800u, 0x3f800800u, 0x00000000u, 0x3f801000u},
    {"product, inexact", MUSER_PROBE_MUL, 0x3e4ccccdu, 0x3dcccccdu, 0x00000000u, 0x3ca3d70bu},
    {"product overflows", MUSER_PROBE_MUL, 0x71800000u, 0xf1800000u, 0x00000000u, 0xff800000u},
    {"sum rounds a tie to even, down", MUSER_PROBE_ADD, 0x4b800000u, 0x3f800000u, 0x00000000u, 0x4b800000u},
    {"sum rounds a tie to even, up", MUSER_PROBE_ADD, 0x4b800001u, 0x3f800000u, 0x00000000u, 0x4b800002u},
    {"sum of opposites is +0", MUSER_PROBE_ADD, 0x3fc00000u, 0xbfc00000u, 0x00000000u, 0x00000000u},
    {"sum of -0 and -0", MUSER_PROBE_ADD, 0x80000000u, 0x80000000u, 0x00000000u, 0x80000000u},
    {"fma keeps the product", MUSER_PROBE_FMA, 0x3f800800u, 0x3f800800u, 0xbf801000u, 0x33800000u},
    {"fma, no double rounding through f64", MUSER_PROBE_FMA, 0x39800001u, 0x397ffffeu, 0x3f800001u, 0x3f800001u},
    {"fma, no double rounding, negative", MUSER_PROBE_FMA, 0xb9800001u, 0x397ffffeu, 0xbf800001u, 0xbf800001u},
    {"fma, inexact", MUSER_PROBE_FMA, 0x3f2d4cf5u, 0xbf6b0a33u, 0xbe90051du, 0xbf671f1bu},
    {"fma cancels", MUSER_PROBE_FMA, 0x3eaaaaabu, 0x40400000u, 0xbf800000u, 0x33000000u},
    {"fma of a huge product", MUSER_PROBE_FMA, 0x71800000u, 0x71800000u, 0xff000000u, 0x7f800000u},
    {"fma negates a rounded product", MUSER_PROBE_FMA_NEG, 0x3f800800u, 0x3f800800u, 0x3f800800u, 0x33800000u},
    {"fma negates a rounded product, inexact", MUSER_PROBE_FMA_NEG, 0xc0d0bc73u, 0x405a4a1fu, 0xc0a71ad7u, 0xc08dfeb3u},
    {"division: 1 / 3", MUSER_PROBE_DIV, 0x3f800000u, 0x40400000u, 0x00000000u, 0x3eaaaaabu},
    {"division: 1 / 49", MUSER_PROBE_DIV, 0x3f800000u, 0x42440000u, 0x00000000u, 0x3ca72f05u},
    {"division: 2 / (e + 1)", MUSER_PROBE_DIV, 0x40000000u, 0x406df854u, 0x00000000u, 0x3f09b2b1u},
    {"division, just under one", MUSER_PROBE_DIV, 0x3f7ffffeu, 0x3f7fffffu, 0x00000000u, 0x3f7fffffu},
    {"division of large by large", MUSER_PROBE_DIV, 0x7b91a2b4u, 0x7b7f6e5du, 0x00000000u, 0x3f91f5bdu},
    {"division by a large divisor", MUSER_PROBE_DIV, 0x3f800000u, 0x7e7fffffu, 0x00000000u, 0x00800001u},
    {"division by zero", MUSER_PROBE_DIV, 0xbf800000u, 0x00000000u, 0x00000000u, 0xff800000u},
    {"square root of 2", MUSER_PROBE_SQRT, 0x40000000u, 0x00000000u, 0x00000000u, 0x3fb504f3u},
    {"square root of 3", MUSER_PROBE_SQRT, 0x40400000u, 0x00000000u, 0x00000000u, 0x3fddb3d7u},
    {"square root just above 1", MUSER_PROBE_SQRT, 0x3f800001u, 0x00000000u, 0x00000000u, 0x3f800000u},
    {"square root just below 4", MUSER_PROBE_SQRT, 0x407fffffu, 0x00000000u, 0x00000000u, 0x3fffffffu},
    {"square root of a small number", MUSER_PROBE_SQRT, 0x3727c5acu, 0x00000000u, 0x00000000u, 0x3b4f3e37u},
    {"square root of 2^-126", MUSER_PROBE_SQRT, 0x00800000u, 0x00000000u, 0x00000000u, 0x20000000u},
    {"rint of 0.5", MUSER_PROBE_RINT, 0x3f000000u, 0x00000000u, 0x00000000u, 0x00000000u},
    {"rint of 1.5", MUSER_PROBE_RINT, 0x3fc00000u, 0x00000000u, 0x00000000u, 0x40000000u},
    {"rint of 2.5", MUSER_PROBE_RINT, 0x40200000u, 0x00000000u, 0x00000000u, 0x40000000u},
    {"rint of -0.5", MUSER_PROBE_RINT, 0xbf000000u, 0x00000000u, 0x00000000u, 0x80000000u},
    {"rint of -2.5", MUSER_PROBE_RINT, 0xc0200000u, 0x00000000u, 0x00000000u, 0xc0000000u},
    {"rint of 0.49999997", MUSER_PROBE_RINT, 0x3effffffu, 0x00000000u, 0x00000000u, 0x00000000u},
    {"rint of 8388607.5", MUSER_PROBE_RINT, 0x4affffffu, 0x00000000u, 0x00000000u, 0x4b000000u},
    {"rint of 32639.5", MUSER_PROBE_RINT, 0x46feff00u, 0x00000000u, 0x00000000u, 0x46ff0000u},
    {"int 16777217 to f32", MUSER_PROBE_INT, 0x01000001u, 0x00000000u, 0x00000000u, 0x4b800000u},
    {"int 16777219 to f32", MUSER_PROBE_INT, 0x01000003u, 0x00000000u, 0x00000000u, 0x4b800002u},
    {"int -16777217 to f32", MUSER_PROBE_INT, 0xfeffffffu, 0x00000000u, 0x00000000u, 0xcb800000u},
    {"int 2147483647 to f32", MUSER_PROBE_INT, 0x7fffffffu, 0x00000000u, 0x00000000u, 0x4f000000u},
    {"int -2147483648 to f32", MUSER_PROBE_INT, 0x80000000u, 0x00000000u, 0x00000000u, 0xcf000000u},
    {"int 130815 to f32", MUSER_PROBE_INT, 0x0001feffu, 0x00000000u, 0x00000000u, 0x47ff7f80u},
    {"wide int 34359738367", MUSER_PROBE_WIDE_INT, 0x07ffffffu, 0x000000ffu, 0x00000000u, 0x51000000u},
    {"wide int -34359552077", MUSER_PROBE_WIDE_INT, 0xf80002d8u, 0xffffffb3u, 0x00000000u, 0xd0ffffa5u},
    {"wide int 16777473", MUSER_PROBE_WIDE_INT, 0x00010001u, 0x00000001u, 0x00000000u, 0x4b800080u},
    {"wide int 22059172795", MUSER_PROBE_WIDE_INT, 0x05234567u, 0xff8edcbbu, 0x00000000u, 0x50a45a88u},
    {"wide int -257", MUSER_PROBE_WIDE_INT, 0xffffffffu, 0xffffffffu, 0x00000000u, 0xc3808000u},
    {"wide int 0", MUSER_PROBE_WIDE_INT, 0x00000000u, 0x00000000u, 0x00000000u, 0x00000000u},
    {"wide int -17367848705", MUSER_PROBE_WIDE_INT, 0xfbedcba9u, 0x06ffffffu, 0x00000000u, 0xd081668bu},
    {"wide int 8589934976", MUSER_PROBE_WIDE_INT, 0x02000001u, 0x00000080u, 0x00000000u, 0x50000000u},
    {"wide int 1214513852, not the short rule", MUSER_PROBE_WIDE_INT, 0x002c9b07u, 0x1bc8fbbcu, 0x00000000u, 0x4e90c805u},
    {"wide int 90574542, not the short rule", MUSER_PROBE_WIDE_INT, 0xffe3ecb5u, 0x217959ceu, 0x00000000u, 0x4cacc1dau},
    {"wide int -32700232286, not the short rule", MUSER_PROBE_WIDE_INT, 0xf86b6e73u, 0xf77b9aa2u, 0x00000000u, 0xd0f3a2beu},
    {"int of rint(32639.5)", MUSER_PROBE_FLOAT_TO_INT, 0x46feff00u, 0x00000000u, 0x00000000u, 0x00007f80u},
    {"int of rint(-32639.5)", MUSER_PROBE_FLOAT_TO_INT, 0xc6feff00u, 0x00000000u, 0x00000000u, 0xffff8080u},
    {"int of rint(-2.5)", MUSER_PROBE_FLOAT_TO_INT, 0xc0200000u, 0x00000000u, 0x00000000u, 0xfffffffeu},
    {"int of rint(1.5)", MUSER_PROBE_FLOAT_TO_INT, 0x3fc00000u, 0x00000000u, 0x00000000u, 0x00000002u},
    {"f16 to f32: smallest subnormal", MUSER_PROBE_FROM_HALF, 0x00000001u, 0x00000000u, 0x00000000u, 0x33800000u},
    {"f16 to f32: largest subnormal", MUSER_PROBE_FROM_HALF, 0x000003ffu, 0x00000000u, 0x00000000u, 0x387fc000u},
    {"f16 to f32: negative subnormal", MUSER_PROBE_FROM_HALF, 0x00008155u, 0x00000000u, 0x00000000u, 0xb7aa8000u},
    {"f16 to f32: smallest normal", MUSER_PROBE_FROM_HALF, 0x00000400u, 0x00000000u, 0x00000000u, 0x38800000u},
    {"f16 to f32: largest", MUSER_PROBE_FROM_HALF, 0x00007bffu, 0x00000000u, 0x00000000u, 0x477fe000u},
    {"f16 to f32: -infinity", MUSER_PROBE_FROM_HALF, 0x0000fc00u, 0x00000000u, 0x00000000u, 0xff800000u},
    {"f16 to f32: NaN", MUSER_PROBE_FROM_HALF, 0x00007c01u, 0x00000000u, 0x00000000u, 0x7fc00000u},
    {"f16 to f32: -0", MUSER_PROBE_FROM_HALF, 0x00008000u, 0x00000000u, 0x00000000u, 0x80000000u},
    {"f16 to f32: 1/3", MUSER_PROBE_FROM_HALF, 0x00003555u, 0x00000000u, 0x00000000u, 0x3eaaa000u},
    {"f32 to f16: smallest subnormal", MUSER_PROBE_TO_HALF, 0x33800000u, 0x00000000u, 0x00000000u, 0x00000001u},
    {"f32 to f16: half the smallest subnormal, tie to even", MUSER_PROBE_TO_HALF, 0x33000000u, 0x00000000u, 0x00000000u, 0x00000000u},
    {"f32 to f16: just above that tie", MUSER_PROBE_TO_HALF, 0x33000001u, 0x00000000u, 0x00000000u, 0x00000001u},
    {"f32 to f16: subnormal tie to even, up", MUSER_PROBE_TO_HALF, 0x33c00000u, 0x00000000u, 0x00000000u, 0x00000002u},
    {"f32 to f16: negative subnormal", MUSER_PROBE_TO_HALF, 0xb7ff8000u, 0x00000000u, 0x00000000u, 0x000081ffu},
    {"f32 to f16: rounds among subnormals", MUSER_PROBE_TO_HALF, 0x387fe000u, 0x00000000u, 0x00000000u, 0x00000400u},
    {"f32 to f16: rounds up to a normal", MUSER_PROBE_TO_HALF, 0x387fffffu, 0x00000000u, 0x00000000u, 0x00000400u},
    {"f32 to f16: tie to even, down", MUSER_PROBE_TO_HALF, 0x3f801000u, 0x00000000u, 0x00000000u, 0x00003c00u},
    {"f32 to f16: tie to even, up", MUSER_PROBE_TO_HALF, 0x3f803000u, 0x00000000u, 0x00000000u, 0x00003c02u},
    {"f32 to f16: rounds down to the largest", MUSER_PROBE_TO_HALF, 0x477fefffu, 0x00000000u, 0x00000000u, 0x00007bffu},
    {"f32 to f16: rounds up to infinity", MUSER_PROBE_TO_HALF, 0x477ff000u, 0x00000000u, 0x00000000u, 0x00007c00u},
    {"f32 to f16: overflow", MUSER_PROBE_TO_HALF, 0xc7800000u, 0x00000000u, 0x00000000u, 0x0000fc00u},
    {"f32 to f16: f32 subnormal", MUSER_PROBE_TO_HALF, 0x00400000u, 0x00000000u, 0x00000000u, 0x00000000u},
    {"f32 to f16: -0", MUSER_PROBE_TO_HALF, 0x80000000u, 0x00000000u, 0x00000000u, 0x00008000u},
    {"flush in: product", MUSER_PROBE_MUL, 0x00400000u, 0x71800000u, 0x00000000u, 0x00000000u},
    {"flush in: negative product", MUSER_PROBE_MUL, 0x807fffffu, 0x71800000u, 0x00000000u, 0x80000000u},
    {"flush in: sum", MUSER_PROBE_ADD, 0x00400000u, 0x00400000u, 0x00000000u, 0x00000000u},
    {"flush in: sum with a normal", MUSER_PROBE_ADD, 0x00800000u, 0x00400000u, 0x00000000u, 0x00800000u},
    {"flush in: fma addend", MUSER_PROBE_FMA, 0x0d800000u, 0x00000000u, 0x00400000u, 0x00000000u},
    {"flush in: fma factor", MUSER_PROBE_FMA, 0x00400000u, 0x7f000000u, 0x35800000u, 0x35800000u},
    {"flush in: dividend", MUSER_PROBE_DIV, 0x00400000u, 0x0d800000u, 0x00000000u, 0x00000000u},
    {"flush in: divisor", MUSER_PROBE_DIV, 0x3f800000u, 0x80400000u, 0x00000000u, 0xff800000u},
    {"flush in: square root", MUSER_PROBE_SQRT, 0x007fffffu, 0x00000000u, 0x00000000u, 0x00000000u},
    {"flush in: comparison", MUSER_PROBE_LESS, 0x00000000u, 0x00400000u, 0x00000000u, 0x00000000u},
    {"flush in: comparison, negative", MUSER_PROBE_LESS, 0x80400000u, 0x00000000u, 0x00000000u, 0x00000000u},
    {"flush out: product", MUSER_PROBE_MUL, 0x00800000u, 0x3f000000u, 0x00000000u, 0x00000000u},
    {"flush out: negative product", MUSER_PROBE_MUL, 0x80800000u, 0x3f400000u, 0x00000000u, 0x80000000u},
    {"flush out: difference", MUSER_PROBE_ADD, 0x00c00000u, 0x80800000u, 0x00000000u, 0x00000000u},
    {"flush out: fma", MUSER_PROBE_FMA, 0x1c800000u, 0xa1800000u, 0x00000000u, 0x80000000u},
    {"flush out: fma cancels", MUSER_PROBE_FMA, 0x20000000u, 0x20400000u, 0x80800000u, 0x00000000u},
    {"flush out: quotient", MUSER_PROBE_DIV, 0x3f800000u, 0x7f000000u, 0x00000000u, 0x00000000u},
    {"flush out: quotient of smalls", MUSER_PROBE_DIV, 0x00800000u, 0xc0400000u, 0x00000000u, 0x80000000u},
    {"no flush: smallest normal product", MUSER_PROBE_MUL, 0x20000000u, 0x20000000u, 0x00000000u, 0x00800000u},
    {"no flush: smallest normal difference", MUSER_PROBE_ADD, 0x01000000u, 0x80800000u, 0x00000000u, 0x00800000u},
    {"no flush: comparison of normals", MUSER_PROBE_LESS, 0x00800000u, 0x00800001u, 0x00000000u, 0x00000001u},
    {"exp: +0", MUSER_PROBE_EXP, 0x00000000u, 0x00000000u, 0x00000000u, 0x3f800000u},
    {"exp: -0", MUSER_PROBE_EXP, 0x80000000u, 0x00000000u, 0x00000000u, 0x3f800000u},
    {"exp: 1", MUSER_PROBE_EXP, 0x3f800000u, 0x00000000u, 0x00000000u, 0x402df854u},
    {"exp: -1", MUSER_PROBE_EXP, 0xbf800000u, 0x00000000u, 0x00000000u, 0x3ebc5ab2u},
    {"exp: largest finite result", MUSER_PROBE_EXP, 0x42b17217u, 0x00000000u, 0x00000000u, 0x7f7fff84u},
    {"exp: overflow", MUSER_PROBE_EXP, 0x42b17218u, 0x00000000u, 0x00000000u, 0x7f800000u},
    {"exp: smallest result", MUSER_PROBE_EXP, 0xc2aeac4eu, 0x00000000u, 0x00000000u, 0x00800066u},
    {"exp: below the smallest result", MUSER_PROBE_EXP, 0xc2aeac4fu, 0x00000000u, 0x00000000u, 0x00000000u},
    {"exp: upper half of a step", MUSER_PROBE_EXP, 0x3eb17217u, 0x00000000u, 0x00000000u, 0x3fb504f3u},
    {"exp: upper end of a step", MUSER_PROBE_EXP, 0x3eb17218u, 0x00000000u, 0x00000000u, 0x3fb504f3u},
    {"exp: 5.2", MUSER_PROBE_EXP, 0x40a67634u, 0x00000000u, 0x00000000u, 0x43359f4eu},
    {"exp: small", MUSER_PROBE_EXP, 0xb9400000u, 0x00000000u, 0x00000000u, 0x3f7ff400u},
    {"exp: subnormal", MUSER_PROBE_EXP, 0x00400000u, 0x00000000u, 0x00000000u, 0x3f800000u},
    {"exp: -infinity", MUSER_PROBE_EXP, 0xff800000u, 0x00000000u, 0x00000000u, 0x00000000u},
    {"exp: infinity", MUSER_PROBE_EXP, 0x7f800000u, 0x00000000u, 0x00000000u, 0x7f800000u},
    {"exp: NaN", MUSER_PROBE_EXP, 0x7fc12345u, 0x00000000u, 0x00000000u, 0x7fc00000u},
    {"exp: -20", MUSER_PROBE_EXP, 0xc1a00000u, 0x00000000u, 0x00000000u, 0x310da433u},
    {"exp: 86", MUSER_PROBE_EXP, 0x42ac0000u, 0x00000000u, 0x00000000u, 0x7d86876du},
    {"tanh: -0", MUSER_PROBE_TANH, 0x80000000u, 0x00000000u, 0x00000000u, 0x80000000u},
    {"tanh: below the threshold", MUSER_PROBE_TANH, 0x3f333332u, 0x00000000u, 0x00000000u, 0x3f1ab7d8u},
    {"tanh: at the threshold", MUSER_PROBE_TANH, 0x3f333333u, 0x00000000u, 0x00000000u, 0x3f1ab7d9u},
    {"tanh: -1", MUSER_PROBE_TANH, 0xbf800000u, 0x00000000u, 0x00000000u, 0xbf42f7d6u},
    {"tanh: small", MUSER_PROBE_TANH, 0x3a800000u, 0x00000000u, 0x00000000u, 0x3a7ffffbu},
    {"tanh: 9", MUSER_PROBE_TANH, 0x41100000u, 0x00000000u, 0x00000000u, 0x3f7fffffu},
    {"tanh: near the overflow of exp", MUSER_PROBE_TANH, 0x42317217u, 0x00000000u, 0x00000000u, 0x3f800000u},
    {"tanh: -infinity", MUSER_PROBE_TANH, 0xff800000u, 0x00000000u, 0x00000000u, 0xbf800000u},
    {"tanh: NaN", MUSER_PROBE_TANH, 0x7fc00001u, 0x00000000u, 0x00000000u, 0x7fc00000u},
    {"tanh: 0.3125", MUSER_PROBE_TANH, 0x3ea00000u, 0x00000000u, 0x00000000u, 0x3e9afcc5u},
    {"sigmoid: 0", MUSER_PROBE_SIGMOID, 0x00000000u, 0x00000000u, 0x00000000u, 0x3f000000u},
    {"sigmoid: -88: flushed", MUSER_PROBE_SIGMOID, 0xc2b00000u, 0x00000000u, 0x00000000u, 0x00000000u},
    {"sigmoid: -84", MUSER_PROBE_SIGMOID, 0xc2a80000u, 0x00000000u, 0x00000000u, 0x02e0f96du},
    {"sigmoid: 6.25", MUSER_PROBE_SIGMOID, 0x40c80000u, 0x00000000u, 0x00000000u, 0x3f7f81bau},
    {"sigmoid: -2.4", MUSER_PROBE_SIGMOID, 0xc0199980u, 0x00000000u, 0x00000000u, 0x3daa56b1u},
    {"sigmoid: -100", MUSER_PROBE_SIGMOID, 0xc2c80000u, 0x00000000u, 0x00000000u, 0x00000000u},
    {"silu(a) * b", MUSER_PROBE_SILU_MUL, 0xbf918000u, 0x404ccccdu, 0x00000000u, 0xbf6235cfu},
    {"silu(a) * b, large", MUSER_PROBE_SILU_MUL, 0x42e00000u, 0x3e180000u, 0x00000000u, 0x41850000u},
    {"silu(a) * b, exp overflows", MUSER_PROBE_SILU_MUL, 0xc2c80000u, 0x5d800000u, 0x00000000u, 0x80000000u},
};
// clang-format on

constexpr size_t kCount = std::size(kRows);

constexpr std::array<uint32_t, 4 * kCount> kInput = [] {
    std::array<uint32_t, 4 * kCount> words{};
    for (size_t i = 0; i < kCount; ++i) {
        words[4 * i] = kRows[i].op;
        words[4 * i + 1] = kRows[i].a;
        words[4 * i + 2] = kRows[i].b;
        words[4 * i + 3] = kRows[i].c;
    }
    return words;
}();

std::string hex(uint32_t word) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%08" PRIx32, word);
    return text;
}

}  // namespace

std::span<const ProbeRow> probe_rows() { return kRows; }

std::span<const uint32_t> probe_input() { return kInput; }

void check_probe(const uint32_t* results, size_t count, const char* device) {
    if (count != kCount) {
        throw ProbeError(std::string(device) + ": the arithmetic probe returned " +
                             std::to_string(count) + " rows, expected " + std::to_string(kCount),
                         {{"device", device},
                          {"found", std::to_string(count)},
                          {"expected", std::to_string(kCount)}});
    }
    for (size_t i = 0; i < kCount; ++i) {
        const ProbeRow& row = kRows[i];
        if (results[i] == row.expected) continue;
        throw ProbeError(std::string(device) + ": arithmetic probe row " + std::to_string(i) +
                             " (" + row.name + ") gave " + hex(results[i]) + ", expected " +
                             hex(row.expected),
                         {{"device", device},
                          {"row", std::to_string(i)},
                          {"name", row.name},
                          {"op", std::to_string(row.op)},
                          {"a", hex(row.a)},
                          {"b", hex(row.b)},
                          {"c", hex(row.c)},
                          {"found", hex(results[i])},
                          {"expected", hex(row.expected)}});
    }
}

void run_probe_on_host(uint32_t* results) {
    const uint32_t* input = kInput.data();
    const FlushSubnormals mode;
    // The compiler knows the table: without this it could compute the results itself.
    __asm__ volatile("" : "+r"(input)::"memory");
    for (size_t i = 0; i < kCount; ++i) {
        const uint32_t* row = input + 4 * i;
        results[i] = muser_probe_op(row[0], row[1], row[2], row[3]);
    }
}

}  // namespace muser::contract
