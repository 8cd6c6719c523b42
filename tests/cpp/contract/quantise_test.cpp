#include "contract/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "contract/f32.h"
#include "contract/ftz.h"
#include "errors.h"
#include "reference.h"

namespace muser::contract {
namespace {

using reference::bits;
using reference::from_bits;
using reference::kInfinity;
using reference::kNaN;
using reference::Random;

// The rule restated: the smallest power of two s >= 2^-126 with max / s rounding to at most 32639.
float smallest_scale(float max) {
    int exponent = std::max(std::ilogb(max) - 15, -126);
    while (std::nearbyint(std::ldexp(double{max}, -exponent)) > 32639) ++exponent;
    return std::ldexp(1.0f, exponent);
}

struct Block {
    float x[kBlock] = {};
    float s = -1;
    int16_t q[kBlock];
    BlockForm form;

    void quantise_both() {
        std::fill(std::begin(q), std::end(q), int16_t{99});
        quantise_block(x, &s, q);
        quantise(x, kBlock, &form);
        ASSERT_EQ(bits(s), bits(form.s));
        int32_t sums[16] = {};
        for (size_t i = 0; i < kBlock; ++i) {
            ASSERT_EQ(block_q(form, i), q[i]) << i;
            ASSERT_GE(form.hi[i], -127);
            ASSERT_LE(form.hi[i], 127);
            sums[i / 16] += q[i];
        }
        for (size_t i = 0; i < 16; ++i) ASSERT_EQ(form.sums[i], sums[i]);
    }
};

TEST(Quantise, ScaleTurnsAt32639AndAHalfSteps) {
    for (const int exponent : {-126, -100, -14, 0, 40, 112}) {
        Block block;
        const float step = std::ldexp(1.0f, exponent);
        block.x[3] = std::nextafter(32639.5f, 0.0f) * step;  // the last maximum of this scale
        block.x[7] = -block.x[3];
        block.quantise_both();
        EXPECT_EQ(block.s, step);
        EXPECT_EQ(block.q[3], 32639);
        EXPECT_EQ(block.q[7], -32639);

        block.x[3] = 32639.5f * step;  // would tie to 32640
        block.x[7] = -block.x[3];
        block.quantise_both();
        EXPECT_EQ(block.s, 2 * step);
        EXPECT_EQ(block.q[3], 16320);  // 16319.75
        EXPECT_EQ(block.q[7], -16320);

        block.x[3] = 32639.0f * step;
        block.x[7] = -32639.0f * step;
        block.quantise_both();
        EXPECT_EQ(block.s, step);
        EXPECT_EQ(block.q[3], 32639);
        EXPECT_EQ(block.form.hi[3], 127);
        EXPECT_EQ(block.form.lo[3], 127);
        EXPECT_EQ(block.form.hi[7], -127);
        EXPECT_EQ(block.form.lo[7], -127);
    }
}

TEST(Quantise, PlanesHoldEveryQ) {
    Block block;
    for (int32_t next = -32641; next < 32639; next += 254) {
        const int32_t start = std::min(next, 32639 - 255);
        block.x[0] = 32639.0f;
        block.x[1] = -32639.0f;
        for (int i = 2; i < 256; ++i) block.x[i] = static_cast<float>(start + i);
        block.quantise_both();
        ASSERT_EQ(block.s, 1.0f);
        for (int i = 2; i < 256; ++i) ASSERT_EQ(block.q[i], start + i);
    }
}

TEST(Quantise, TiesGoToEven) {
    Block block;
    block.x[0] = 20000.0f;
    const float halves[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f};
    const int16_t expected[] = {0, 2, 2, 0, -2, -2};
    std::copy(std::begin(halves), std::end(halves), block.x + 1);
    block.quantise_both();
    ASSERT_EQ(block.s, 1.0f);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(block.q[1 + i], expected[i]) << halves[i];
}

TEST(Quantise, ZeroAndSubnormalBlocksAreZero) {
    for (const uint32_t u : {0u, 0x80000000u, 1u, 0x007fffffu, 0x807fffffu}) {
        Block block;
        std::fill(std::begin(block.x), std::end(block.x), from_bits(u));
        block.quantise_both();
        EXPECT_EQ(bits(block.s), 0u) << u;
        for (const int16_t q : block.q) ASSERT_EQ(q, 0);
    }
}

TEST(Quantise, SmallestNormalBlockHasTheSmallestScaleAndFlushesSubnormals) {
    Block block;
    block.x[0] = 0x1p-126f;
    block.x[1] = from_bits(0x00600000u);  // 0.75 of it, but a zero by the rule
    block.quantise_both();
    EXPECT_EQ(block.s, 0x1p-126f);
    EXPECT_EQ(block.q[0], 1);
    EXPECT_EQ(block.q[1], 0);
    block.x[0] = 20000 * 0x1p-126f;
    block.quantise_both();
    EXPECT_EQ(block.s, 0x1p-126f);
    EXPECT_EQ(block.q[0], 20000);
}

TEST(Quantise, LargestFiniteBlockDoesNotOverflow) {
    Block block;
    block.x[0] = 0x1.fffffep127f;
    block.quantise_both();
    EXPECT_EQ(block.s, 0x1p114f);
    EXPECT_EQ(block.q[0], 16384);
}

TEST(Quantise, ANonFiniteElementMakesTheScaleNaNAndAllElseZero) {
    for (const float bad : {kNaN, -kNaN, kInfinity, -kInfinity, from_bits(0x7f800001u)}) {
        for (const size_t at : {0, 17, 255}) {
            Block block;
            std::fill(std::begin(block.x), std::end(block.x), 1.0f);
            block.x[at] = bad;
            block.quantise_both();
            EXPECT_TRUE(std::isnan(block.s));
            for (const int16_t q : block.q) ASSERT_EQ(q, 0);
        }
    }
}

TEST(Quantise, RandomBlocksAreWithinHalfAStep) {
    Random random(11);
    for (int n = 0; n < 300; ++n) {
        Block block;
        const float size = std::ldexp(1.0f, static_cast<int>(random.below(200)) - 100);
        for (float& x : block.x) x = random.gaussian() * size;
        block.quantise_both();
        float max = 0;
        for (const float x : block.x) max = std::max(max, std::fabs(x));
        ASSERT_EQ(block.s, smallest_scale(max));
        for (size_t i = 0; i < kBlock; ++i) {
            const double steps = double{block.x[i]} / block.s;
            ASSERT_EQ(block.q[i], std::nearbyint(steps)) << block.x[i];
        }
    }
}

TEST(Quantise, TheHostsModeDoesNotMatter) {
    Random random(12);
    Block block;
    for (float& x : block.x) x = random.with_exponent(0, 6);
    block.quantise_both();
    int16_t q[kBlock];
    float s = 0;
    {
        const FlushSubnormals mode;
        quantise_block(block.x, &s, q);
    }
    EXPECT_EQ(bits(s), bits(block.s));
    EXPECT_TRUE(std::equal(std::begin(q), std::end(q), std::begin(block.q)));
}

TEST(Quantise, BlocksAreIndependentAndRaggedLengthsAreRefused) {
    std::vector<float> x(512, 1.0f);
    x[256] = kNaN;
    BlockForm blocks[2];
    quantise(x.data(), 512, blocks);
    EXPECT_EQ(blocks[0].s, 0x1p-14f);
    EXPECT_TRUE(std::isnan(blocks[1].s));
    EXPECT_THROW(quantise(x.data(), 300, blocks), Error);
}

// Every normal f32 as a block's maximum: |q| <= 32639 without a clamp, both planes int8, and s the
// smallest power of two for which that holds.
void sweep_maxima(uint32_t first, uint32_t last, uint64_t* failures) {
    for (uint32_t u = first; u < last; ++u) {
        const float max = from_bits(u);
        const float s = block_scale(u);
        const uint32_t field = bits(s) >> 23;
        const float inverse = from_bits((254 - field) << 23);
        const auto q = static_cast<int32_t>(rint(max * inverse));
        const auto low = static_cast<int8_t>(q & 255);
        const int32_t high = (q - low) / 256;
        // At half the scale the maximum would not fit (at the smallest scale there is no half).
        const bool smallest = field == 1 || rint(max * (2 * inverse)) > 32639;
        const bool power = (bits(s) & 0x807fffffu) == 0 && field >= 1 && field <= 241;
        if (q < 0 || q > 32639 || high > 127 || !smallest || !power) ++*failures;
    }
}

TEST(Quantise, SweepOfEveryNormalMaximum) {
    const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
    std::vector<uint64_t> failures(threads, 0);
    std::vector<std::thread> pool;
    const uint32_t first = 0x00800000u;
    const uint64_t count = 0x7f800000u - first;
    for (unsigned t = 0; t < threads; ++t) {
        pool.emplace_back(sweep_maxima, first + static_cast<uint32_t>(count * t / threads),
                          first + static_cast<uint32_t>(count * (t + 1) / threads), &failures[t]);
    }
    for (std::thread& thread : pool) thread.join();
    for (const uint64_t n : failures) EXPECT_EQ(n, 0u);
}

}  // namespace
}  // namespace muser::contract
