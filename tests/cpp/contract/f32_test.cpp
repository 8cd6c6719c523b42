#include "contract/f32.h"

#include <gtest/gtest.h>

#include "contract/fma.h"
#include "contract/ftz.h"
#include "contract/int_to_float.h"
#include "contract/tree.h"
#include "reference.h"

namespace muser::contract {
namespace {

using reference::bits;
using reference::from_bits;
using reference::kInfinity;
using reference::kNaN;
using reference::Random;

#define EXPECT_SAME_BITS(found, expected) \
    EXPECT_EQ(reference::bits(found), reference::bits(expected))
#define ASSERT_SAME_BITS(found, expected) \
    ASSERT_EQ(reference::bits(found), reference::bits(expected))

// Values at which rounding, overflow and flushing turn.
std::vector<float> edges() {
    std::vector<float> list;
    for (const uint32_t u :
         {0u,          1u,          0x00400000u, 0x007fffffu, 0x00800000u, 0x00800001u, 0x00ffffffu,
          0x01000000u, 0x0c000000u, 0x1f800000u, 0x1fffffffu, 0x20000000u, 0x33800000u, 0x34000000u,
          0x3effffffu, 0x3f000000u, 0x3f7fffffu, 0x3f800000u, 0x3f800001u, 0x3fffffffu, 0x40000000u,
          0x4b000000u, 0x4b800001u, 0x5f000000u, 0x7e800000u, 0x7f000000u, 0x7f7fffffu}) {
        list.push_back(from_bits(u));
        list.push_back(from_bits(u | 0x80000000u));
    }
    return list;
}

void compare_two(float a, float b) {
    ASSERT_SAME_BITS(add(a, b), reference::add(flush(a), flush(b))) << a << " + " << b;
    ASSERT_SAME_BITS(sub(a, b), reference::add(flush(a), -flush(b))) << a << " - " << b;
    ASSERT_SAME_BITS(mul(a, b), reference::mul(a, b)) << a << " * " << b;
    if (flush(b) == 0.0f) return;
    ASSERT_SAME_BITS(div(a, b), reference::div(a, b)) << a << " / " << b;
}

void compare_three(float a, float b, float c) {
    // A zero product leaves the addend, flushed.
    const float expected = reference::fma(flush(a), flush(b), flush(c));
    ASSERT_SAME_BITS(fma_software(a, b, c), expected) << a << " * " << b << " + " << c;
    ASSERT_SAME_BITS(fma(a, b, c), expected) << a << " * " << b << " + " << c;
}

TEST(F32, EdgesAgreeWithIntegerArithmetic) {
    const std::vector<float> list = edges();
    for (const float a : list) {
        for (const float b : list) {
            compare_two(a, b);
            for (const float c : list) compare_three(a, b, c);
        }
    }
}

TEST(F32, RandomOperandsAgreeWithIntegerArithmetic) {
    Random random(1);
    for (int i = 0; i < 200000; ++i) {
        compare_two(random.with_exponent(0, 254), random.with_exponent(0, 254));
        compare_two(random.with_exponent(120, 135), random.with_exponent(120, 135));
    }
    for (int i = 0; i < 100000; ++i) {  // results around the smallest normal
        const float a = random.with_exponent(1, 120);
        const uint32_t field = 127 - (bits(a) >> 23 & 255);
        compare_two(a, random.with_exponent(field, field + 2));
        compare_two(a, from_bits(bits(a) ^ (0x80000000u | random.below(1u << 23))));
    }
}

TEST(F32, FmaAgreesWithIntegerArithmetic) {
    Random random(2);
    for (int i = 0; i < 400000; ++i) {
        compare_three(random.with_exponent(0, 254), random.with_exponent(0, 254),
                      random.with_exponent(0, 254));
        // Comparable magnitudes: cancellation and every alignment of the addend.
        const float a = random.with_exponent(100, 150);
        const float b = random.with_exponent(100, 150);
        const int field =
            static_cast<int>(bits(a) >> 23 & 255) + static_cast<int>(bits(b) >> 23 & 255) - 127;
        const uint32_t low = static_cast<uint32_t>(field - 52 > 1 ? field - 52 : 1);
        compare_three(a, b, random.with_exponent(low, static_cast<uint32_t>(field) + 52));
        compare_three(a, b, -(a * b));  // leaves the product's rounding error
    }
    for (int i = 0; i < 200000; ++i) {  // results around the smallest normal and overflow
        compare_three(random.with_exponent(30, 70), random.with_exponent(30, 70),
                      random.with_exponent(0, 4));
        compare_three(random.with_exponent(180, 200), random.with_exponent(180, 200),
                      random.with_exponent(250, 254));
    }
}

// Ties of the f64 sum that a plain (float)(double) would round twice.
TEST(F32, FmaDoesNotRoundTwice) {
    const float a = 0x1.000002p-12f;
    const float b = 0x1.fffffcp-13f;
    const float c = 0x1.000002p0f;
    const float twice =
        static_cast<float>(static_cast<double>(a) * static_cast<double>(b) + double{c});
    EXPECT_NE(bits(twice), bits(c));
    EXPECT_SAME_BITS(fma(a, b, c), c);
    EXPECT_SAME_BITS(fma_software(a, b, c), c);
}

TEST(F32, SubnormalsAreFlushedAfterRounding) {
    const float least = 0x1p-126f;
    EXPECT_SAME_BITS(flush(from_bits(0x807fffffu)), -0.0f);
    EXPECT_SAME_BITS(flush(least), least);
    EXPECT_SAME_BITS(mul(least, 0x1.fffffep-1f), 0.0f);  // 2^-126 (1 - 2^-24): on the f32 grid
    EXPECT_SAME_BITS(mul(-least, 0x1.fffffep-1f), -0.0f);
    EXPECT_SAME_BITS(fma(least, 0x1.fffffep-1f, 0.0f), 0.0f);
    EXPECT_SAME_BITS(fma_software(least, 0x1.fffffep-1f, 0.0f), 0.0f);
    EXPECT_SAME_BITS(div(least, 0x1.000002p0f), 0.0f);
    EXPECT_SAME_BITS(sub(0x1.8p-126f, least), 0.0f);
    EXPECT_SAME_BITS(sub(least, 0x1.8p-126f), -0.0f);
    EXPECT_SAME_BITS(mul(0x1p-63f, 0x1p-63f), least);
    EXPECT_SAME_BITS(sqrt(from_bits(0x007fffffu)), 0.0f);
    EXPECT_SAME_BITS(sqrt(-0.0f), -0.0f);
    EXPECT_SAME_BITS(div(1.0f, from_bits(0x80000001u)), -kInfinity);
}

TEST(F32, NonFiniteOperandsPropagate) {
    EXPECT_TRUE(std::isnan(add(kNaN, 1.0f)) && std::isnan(mul(kNaN, 0.0f)));
    EXPECT_TRUE(std::isnan(sub(kInfinity, kInfinity)) && std::isnan(mul(kInfinity, 0.0f)));
    EXPECT_TRUE(std::isnan(div(0.0f, 0.0f)) && std::isnan(div(kInfinity, kInfinity)));
    EXPECT_TRUE(std::isnan(sqrt(-1.0f)) && std::isnan(sqrt(kNaN)));
    EXPECT_EQ(div(-1.0f, 0.0f), -kInfinity);
    EXPECT_SAME_BITS(div(-1.0f, kInfinity), -0.0f);
    EXPECT_EQ(sqrt(kInfinity), kInfinity);
    for (const auto f : {fma, fma_software}) {
        EXPECT_TRUE(std::isnan(f(kNaN, 1.0f, 1.0f)) && std::isnan(f(1.0f, 1.0f, kNaN)));
        EXPECT_TRUE(std::isnan(f(kInfinity, 0.0f, 1.0f)));
        EXPECT_TRUE(std::isnan(f(kInfinity, from_bits(1), 1.0f)));  // the subnormal is a zero
        EXPECT_TRUE(std::isnan(f(kInfinity, 1.0f, -kInfinity)));
        EXPECT_EQ(f(kInfinity, -1.0f, 5.0f), -kInfinity);
        EXPECT_EQ(f(3.0f, 4.0f, kInfinity), kInfinity);
        EXPECT_EQ(f(0x1p127f, 2.0f, -0x1p127f), 0x1p127f);  // only the result may overflow
        EXPECT_EQ(f(0x1p127f, 2.0f, 0.0f), kInfinity);
    }
    EXPECT_TRUE(non_finite(kNaN) && non_finite(-kInfinity) && !non_finite(0x1.fffffep127f));
}

TEST(F32, SquareRootAgreesWithIntegerArithmetic) {
    Random random(3);
    for (int i = 0; i < 100000; ++i) {
        const float a = std::fabs(random.with_exponent(1, 254));
        ASSERT_SAME_BITS(sqrt(a), reference::sqrt(a)) << a;
    }
    EXPECT_EQ(sqrt(9.0f), 3.0f);
}

TEST(F32, RintTiesToEvenAndKeepsTheSign) {
    EXPECT_SAME_BITS(rint(0.5f), 0.0f);
    EXPECT_SAME_BITS(rint(-0.5f), -0.0f);
    EXPECT_SAME_BITS(rint(-0.0f), -0.0f);
    EXPECT_EQ(rint(1.5f), 2.0f);
    EXPECT_EQ(rint(2.5f), 2.0f);
    EXPECT_EQ(rint(-3.5f), -4.0f);
    EXPECT_EQ(rint(0x1.fffffep22f), 0x1p23f);
    EXPECT_EQ(rint(0x1.000002p23f), 0x1.000002p23f);
    EXPECT_EQ(rint(-kInfinity), -kInfinity);
    EXPECT_TRUE(std::isnan(rint(kNaN)));
    Random random(4);
    for (int i = 0; i < 200000; ++i) {
        const float x = random.with_exponent(110, 155);
        ASSERT_SAME_BITS(rint(x), std::nearbyint(x)) << x;
    }
}

// The written-out rule and the hardware's mode are the same rule. The operands come through memory
// and the work is a function of its own, as ftz.h asks.
[[gnu::noinline]] void hardware_results(const volatile float* in, float* out) {
    out[0] = in[0] + in[1];
    out[1] = in[0] * in[1];
    out[2] = in[0] / in[1];
    out[3] = in[0] - in[1];
}

// AArch64 flushes before rounding: docs/numerics.md §0 leaves this sliver out.
bool outside_promise(double exact) {
    return std::fabs(exact) >= kTiny && std::fabs(exact) < 0x1p-126;
}

TEST(F32, AgreesWithTheHardwareModeNearTheSmallestNormal) {
    Random random(5);
    for (int i = 0; i < 100000; ++i) {
        const float a = random.with_exponent(0, 120);
        const uint32_t sum_field = 126 - std::min(bits(a) >> 23 & 255, 126u);
        const float in[2] = {a, random.with_exponent(sum_field, sum_field + 3)};
        float out[4];
        {
            const FlushSubnormals mode;
            hardware_results(in, out);
        }
        ASSERT_SAME_BITS(out[0], add(in[0], in[1]));
        if (!outside_promise(double{in[0]} * in[1])) {
            ASSERT_SAME_BITS(out[1], mul(in[0], in[1])) << in[0] << " * " << in[1];
        }
        ASSERT_SAME_BITS(out[3], sub(in[0], in[1]));
        if (std::isnan(out[2]) || outside_promise(double{in[0]} / in[1])) continue;
        ASSERT_SAME_BITS(out[2], div(in[0], in[1]));
    }
}

TEST(Ftz, ModeIsSetInScopeAndRestoredAfterIt) {
    const uint64_t before = float_mode();
    volatile float least = 0x1p-126f;
    {
        const FlushSubnormals outer;
        EXPECT_EQ(float_mode(), kContractFloatMode);
        EXPECT_EQ(least * 0.5f, 0.0f);
        {
            const FlushSubnormals inner;
            EXPECT_EQ(least * 0.5f, 0.0f);
        }
        EXPECT_EQ(least * 0.5f, 0.0f);
    }
    EXPECT_NE(least * 0.5f, 0.0f);
    const uint64_t sticky = 0x3f;  // exception flags may have been raised meanwhile
    EXPECT_EQ(float_mode() & ~sticky, before & ~sticky);
}

TEST(Ftz, AnExceptionRestoresTheMode) {
    volatile float least = 0x1p-126f;
    try {
        const FlushSubnormals mode;
        throw 1;
    } catch (int) {
    }
    EXPECT_NE(least * 0.5f, 0.0f);
}

TEST(Tree, HalvesRepeatedly) {
    // (1 + -1) + (2^-30 + 2^-30), not any other pairing.
    float v[4] = {1.0f, 0x1p-30f, -1.0f, 0x1p-30f};
    EXPECT_EQ(tree(v, 4), 0x1p-29f);
    float one[1] = {-0.0f};
    EXPECT_SAME_BITS(tree(one, 1), -0.0f);
    Random random(6);
    for (const size_t n : {2u, 8u, 32u, 64u}) {
        std::vector<float> list(n);
        for (float& x : list) x = random.with_exponent(100, 150);
        std::vector<float> scratch = list;
        ASSERT_SAME_BITS(tree(scratch.data(), n), reference::tree(list));
    }
}

TEST(Tree, EqualsTheXorButterflyInEveryLane) {
    Random random(7);
    std::vector<float> v(32);
    for (float& x : v) x = random.with_exponent(100, 150);
    std::vector<float> lanes = v;
    for (size_t mask = 16; mask > 0; mask /= 2) {
        const std::vector<float> old = lanes;
        for (size_t i = 0; i < 32; ++i) lanes[i] = add(old[i], old[i ^ mask]);
    }
    const float sum = tree(v.data(), 32);
    for (const float lane : lanes) EXPECT_SAME_BITS(lane, sum);
}

float exact_int(int64_t t) {
    const uint64_t magnitude = static_cast<uint64_t>(t < 0 ? -t : t);
    return reference::round(t < 0, magnitude, 0, false);
}

void compare_wide(int64_t t, int64_t th) {
    const int64_t tl = t - 256 * th;
    ASSERT_TRUE(th == static_cast<int32_t>(th) && tl == static_cast<int32_t>(tl));
    const float expected = exact_int(t);
    ASSERT_SAME_BITS(int_to_float(static_cast<int32_t>(th), static_cast<int32_t>(tl)), expected)
        << t << " = 256 * " << th << " + " << tl;
    ASSERT_SAME_BITS(int_to_float(t), expected) << t;
}

TEST(IntToFloat, WideRuleRoundsOnce) {
    Random random(8);
    for (int i = 0; i < 400000; ++i) {
        // Any split: the two planes' sums are not normalised.
        const int64_t tl = static_cast<int32_t>(random.word()) >> random.below(24);
        const int64_t t = static_cast<int64_t>(random.next()) >> (28 + random.below(36));
        const int64_t th = (t - tl) / 256;
        compare_wide(t, th);
    }
    for (const int64_t bound : {int64_t{1} << 35, int64_t{1} << 24, int64_t{0}}) {
        for (int64_t d = -300; d <= 300; ++d) {
            for (const int64_t t : {bound + d, -bound - d}) {
                compare_wide(t, t / 256);
                compare_wide(t, (t >> 8) - 4000000);
            }
        }
    }
}

TEST(IntToFloat, TheShortRuleIsAnotherOne) {
    const int32_t th = 0x002c9b07;
    const int32_t tl = 0x1bc8fbbc;
    const float brief = fma(static_cast<float>(th), 256.0f, static_cast<float>(tl));
    EXPECT_NE(bits(brief), bits(int_to_float(th, tl)));
}

}  // namespace
}  // namespace muser::contract
