#include "contract/half.h"

#include <gtest/gtest.h>

#include "reference.h"

namespace muser::contract {
namespace {

using reference::bits;
using reference::from_bits;
using reference::kInfinity;

// An f16's value in f64, by its definition.
double f16_value(uint32_t half) {
    const int exponent = static_cast<int>((half >> 10) & 31);
    const double mantissa = half & 1023;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryF16BecomesItsValueAndComesBack) {
    for (uint32_t half = 0; half < 0x10000; ++half) {
        const float value = f16_to_f32(static_cast<uint16_t>(half));
        if ((half & 0x7c00) == 0x7c00) {
            if ((half & 0x3ff) != 0) {
                ASSERT_TRUE(std::isnan(value)) << half;
                const uint16_t back = f32_to_f16(value);
                ASSERT_TRUE((back & 0x7c00) == 0x7c00 && (back & 0x3ff) != 0) << half;
                continue;
            }
            ASSERT_EQ(value, (half & 0x8000) != 0 ? -kInfinity : kInfinity);
        } else {
            ASSERT_EQ(static_cast<double>(value), f16_value(half)) << half;
            ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << half;
        }
        ASSERT_EQ(f32_to_f16(value), half);
    }
}

// Rounding is settled by the midpoints between neighbours and the floats on either side of them.
TEST(Half, MidpointsGoToTheEvenNeighbourAndAllElseToTheNearest) {
    for (uint32_t half = 0; half < 0x7c00; ++half) {
        // The neighbour of the largest is 2^16 for this purpose: half way lies 65520.
        const double next = half == 0x7bff ? 65536.0 : f16_value(half + 1);
        const float middle = static_cast<float>((f16_value(half) + next) / 2);
        for (const uint32_t sign : {0u, 0x8000u}) {
            const uint32_t f32_sign = sign << 16;
            ASSERT_EQ(f32_to_f16(from_bits((bits(middle) - 1) | f32_sign)), half | sign);
            ASSERT_EQ(f32_to_f16(from_bits(bits(middle) | f32_sign)), (half + (half & 1)) | sign);
            ASSERT_EQ(f32_to_f16(from_bits((bits(middle) + 1) | f32_sign)), (half + 1) | sign);
        }
    }
}

TEST(Half, ConversionIsMonotone) {
    uint16_t last = 0;
    for (uint32_t u = 0; u < 0x7f800000u; u += 997) {
        const uint16_t half = f32_to_f16(from_bits(u));
        ASSERT_GE(half, last) << std::hex << u;
        last = half;
    }
    EXPECT_EQ(last, 0x7c00);
}

TEST(Half, Bf16IsTheUpperHalfAndRoundsToEven) {
    for (uint32_t b = 0; b < 0x10000; ++b) {
        const float value = bf16_to_f32(static_cast<uint16_t>(b));
        ASSERT_EQ(bits(value), b << 16);
        if (std::isnan(value)) {
            ASSERT_TRUE((f32_to_bf16(value) & 0x7fff) > 0x7f80) << b;
        } else {
            ASSERT_EQ(f32_to_bf16(value), b);
        }
    }
    EXPECT_EQ(f32_to_bf16(from_bits(0x3f808000)), 0x3f80);  // tie, down to even
    EXPECT_EQ(f32_to_bf16(from_bits(0x3f818000)), 0x3f82);  // tie, up to even
    EXPECT_EQ(f32_to_bf16(from_bits(0x3f808001)), 0x3f81);
    EXPECT_EQ(f32_to_bf16(from_bits(0x7f7fffff)), 0x7f80);
    EXPECT_EQ(f32_to_bf16(from_bits(0xff800001)) & 0x7fff, 0x7fc0);  // not an infinity
}

}  // namespace
}  // namespace muser::contract
