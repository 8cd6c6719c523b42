#include "contract/rope.h"

#include <gtest/gtest.h>

#include <numbers>

#include "errors.h"
#include "reference.h"

namespace muser::contract {
namespace {

using reference::bits;
using reference::Random;

// The host's long double routines are the witness. 4 units of 2^-53 are 2 to 4 ulp of f64.
void compare(double theta) {
    const SinCos found = sin_cos(theta);
    const double s = static_cast<double>(std::sin(static_cast<long double>(theta)));
    const double c = static_cast<double>(std::cos(static_cast<long double>(theta)));
    const double unit = 0x1p-53;
    ASSERT_LE(std::fabs(found.sin - s), 4 * unit * std::max(std::fabs(s), 0x1p-20)) << theta;
    ASSERT_LE(std::fabs(found.cos - c), 4 * unit * std::max(std::fabs(c), 0x1p-20)) << theta;
}

TEST(Rope, SineAndCosineAreCloseToExact) {
    Random random(51);
    compare(0.0);
    for (int i = 0; i < 300000; ++i) {
        const double fraction = static_cast<double>(random.next() >> 11) * 0x1p-53;
        compare(fraction * 0x1p20);
        compare(fraction * 8);
        compare(fraction * 0x1p-10);
        compare(static_cast<double>(random.below(1u << 20)));
    }
}

TEST(Rope, NeighbourhoodsOfQuarterTurns) {
    for (int n = 1; n < 600000; n += 7) {
        const double turn = static_cast<double>(n * (std::numbers::pi_v<long double> / 2));
        compare(turn);
        compare(std::nextafter(turn, 0.0));
    }
}

// inv_i of the model, in long double: base 500000 over 128 dims.
std::vector<double> frequencies(size_t pairs) {
    std::vector<double> inv(pairs);
    for (size_t i = 0; i < pairs; ++i) {
        inv[i] = static_cast<double>(
            std::pow(500000.0L, -static_cast<long double>(i) / static_cast<long double>(pairs)));
    }
    return inv;
}

TEST(Rope, TableIsTheRoundedValueOfTheRoundedAngle) {
    const std::vector<double> inv = frequencies(64);
    int64_t misrounded = 0;
    int64_t entries = 0;
    for (int64_t pos = 0; pos < 131072; pos += 61) {
        float c[64];
        float s[64];
        rope_table(pos, inv.data(), 64, c, s);
        for (size_t i = 0; i < 64; ++i) {
            const double theta = static_cast<double>(pos) * inv[i];
            const auto exact_s = std::sin(static_cast<long double>(theta));
            const auto exact_c = std::cos(static_cast<long double>(theta));
            misrounded += s[i] != static_cast<float>(exact_s);
            misrounded += c[i] != static_cast<float>(exact_c);
            entries += 2;
        }
    }
    EXPECT_LE(misrounded, 1) << "of " << entries;
    float c = 0;
    float s = 1;
    rope_table(0, inv.data(), 1, &c, &s);
    EXPECT_EQ(bits(c), bits(1.0f));
    EXPECT_EQ(bits(s), bits(0.0f));
}

TEST(Rope, RotatesInterleavedPairs) {
    Random random(52);
    float c[32];
    float s[32];
    rope_table(777, frequencies(32).data(), 32, c, s);
    float x[64];
    for (float& value : x) value = random.gaussian();
    float y[64];
    std::copy(std::begin(x), std::end(x), y);
    rope(y, c, s, 32);
    for (size_t i = 0; i < 32; ++i) {
        const float x0 = x[2 * i];
        const float x1 = x[2 * i + 1];
        ASSERT_EQ(bits(y[2 * i]), bits(reference::fma(x0, c[i], -reference::mul(x1, s[i]))));
        ASSERT_EQ(bits(y[2 * i + 1]), bits(reference::fma(x0, s[i], reference::mul(x1, c[i]))));
        ASSERT_NEAR(std::hypot(y[2 * i], y[2 * i + 1]), std::hypot(x0, x1), 1e-6);
    }
    // A quarter turn: (1, 0) becomes (0, 1).
    const float zero = 0;
    const float one = 1;
    float pair[2] = {1, 0};
    rope(pair, &zero, &one, 1);
    EXPECT_EQ(pair[0], 0.0f);
    EXPECT_EQ(pair[1], 1.0f);
}

TEST(Rope, OutOfRangeIsRefused) {
    float c = 0;
    float s = 0;
    const double one = 1;
    const double two = 2;
    const double nan = reference::kNaN;
    EXPECT_NO_THROW(rope_table((int64_t{1} << 20) - 1, &one, 1, &c, &s));
    EXPECT_THROW(rope_table(int64_t{1} << 20, &one, 1, &c, &s), Error);
    EXPECT_THROW(rope_table(-1, &one, 1, &c, &s), Error);
    EXPECT_THROW(rope_table(1, &two, 1, &c, &s), Error);
    EXPECT_THROW(rope_table(1, &nan, 1, &c, &s), Error);
}

}  // namespace
}  // namespace muser::contract
