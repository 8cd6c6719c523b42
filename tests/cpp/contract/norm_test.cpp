#include "contract/norm.h"

#include <gtest/gtest.h>

#include "reference.h"

namespace muser::contract {
namespace {

using reference::bits;
using reference::kInfinity;
using reference::kNaN;
using reference::Random;

std::vector<float> vector_of(size_t n, Random& random) {
    std::vector<float> x(n);
    for (float& value : x) value = random.gaussian() * 3.0f;
    return x;
}

// All partials side by side, one pass over x in order, then the groups.
float chained_squares(const std::vector<float>& x, size_t count) {
    std::vector<float> partials(count, 0.0f);
    for (size_t i = 0; i < x.size(); ++i) {
        float& partial = partials[i % count];
        partial = reference::fma(x[i], x[i], partial);
    }
    std::vector<float> groups;
    for (size_t g = 0; g < count; g += 32) {
        const auto first = partials.begin() + static_cast<std::ptrdiff_t>(g);
        groups.push_back(reference::tree(std::vector<float>(first, first + 32)));
    }
    if (count != 128) return reference::tree(groups);
    return reference::add(reference::add(reference::add(groups[0], groups[1]), groups[2]),
                          groups[3]);
}

const size_t kLengths[] = {1, 5, 16, 31, 32, 33, 128, 1000, 1023, 1024, 1025, 2048, 6656};

TEST(RmsNorm, SumsAreThePinnedPartials) {
    Random random(31);
    for (const size_t n : kLengths) {
        const std::vector<float> x = vector_of(n, random);
        ASSERT_EQ(bits(sum_of_squares(x.data(), n)),
                  bits(chained_squares(x, n >= 1024 ? 1024 : 32)))
            << n;
        ASSERT_EQ(bits(sum_of_squares_4sg(x.data(), n)), bits(chained_squares(x, 128))) << n;
    }
}

TEST(RmsNorm, TheFourGroupReductionIsAnotherOne) {
    Random random(32);
    int different = 0;
    for (int i = 0; i < 20; ++i) {
        const std::vector<float> x = vector_of(6656, random);
        const float pinned = sum_of_squares(x.data(), x.size());
        if (bits(pinned) != bits(sum_of_squares_4sg(x.data(), x.size()))) ++different;
    }
    EXPECT_GT(different, 5);
}

TEST(RmsNorm, ValuesAreScaledThenWeighted) {
    Random random(33);
    for (const size_t n : kLengths) {
        const std::vector<float> x = vector_of(n, random);
        const std::vector<float> w = vector_of(n, random);
        const float eps = 1e-5f;
        const float total = chained_squares(x, n >= 1024 ? 1024 : 32);
        const float mean = reference::div(total, static_cast<float>(n));
        const float scale = reference::div(1.0f, reference::sqrt(reference::add(mean, eps)));
        std::vector<float> y(n);
        std::vector<float> bare(n);
        rms_norm(x.data(), w.data(), n, eps, y.data());
        rms_norm(x.data(), nullptr, n, eps, bare.data());
        double exact = 0;
        for (const float value : x) exact += double{value} * value;
        exact = 1 / std::sqrt(exact / static_cast<double>(n) + double{eps});
        for (size_t i = 0; i < n; ++i) {
            const float scaled = reference::mul(x[i], scale);
            ASSERT_EQ(bits(bare[i]), bits(scaled));
            ASSERT_EQ(bits(y[i]), bits(reference::mul(scaled, w[i])));
            ASSERT_NEAR(bare[i], x[i] * exact, 1e-6 * std::fabs(x[i] * exact));
        }
        std::vector<float> in_place = x;
        rms_norm(in_place.data(), w.data(), n, eps, in_place.data());
        ASSERT_EQ(in_place, y);
        std::vector<float> four(n);
        rms_norm_4sg(x.data(), w.data(), n, eps, four.data());
        const float four_scale = rms_scale(chained_squares(x, 128), n, eps);
        ASSERT_EQ(bits(four[n - 1]),
                  bits(reference::mul(reference::mul(x[n - 1], four_scale), w[n - 1])));
    }
}

TEST(RmsNorm, EpsilonCounts) {
    const float x[2] = {0.0f, 0.0f};
    EXPECT_EQ(rms_scale(sum_of_squares(x, 2), 2, 0.25f), 2.0f);
    EXPECT_EQ(rms_scale(8.0f, 2, 0.0f), 0.5f);
    EXPECT_NE(bits(rms_scale(1e-4f, 1, 1e-5f)), bits(rms_scale(1e-4f, 1, 1e-8f)));
}

TEST(RmsNorm, ANonFiniteTotalGivesNaN) {
    // An infinite total would launder every finite element into 0.
    for (const float bad : {kInfinity, -kInfinity, kNaN, 1e30f}) {
        std::vector<float> x(40, 1.0f);
        x[39] = bad;
        std::vector<float> y(40);
        rms_norm(x.data(), nullptr, 40, 1e-5f, y.data());
        for (const float value : y) ASSERT_TRUE(std::isnan(value)) << bad;
        rms_norm_4sg(x.data(), nullptr, 40, 1e-5f, y.data());
        for (const float value : y) ASSERT_TRUE(std::isnan(value)) << bad;
    }
}

TEST(ResidualAdd, IsThePlainSumAndFlushes) {
    Random random(34);
    const std::vector<float> h = vector_of(100, random);
    std::vector<float> y = vector_of(100, random);
    y[5] = -h[5];
    std::vector<float> out(100);
    residual_add(h.data(), y.data(), 100, out.data());
    for (size_t i = 0; i < 100; ++i) ASSERT_EQ(bits(out[i]), bits(reference::add(h[i], y[i])));
    EXPECT_EQ(bits(out[5]), 0u);
    const float a = 0x1.8p-126f;
    const float b = -0x1p-126f;
    residual_add(&a, &b, 1, out.data());
    EXPECT_EQ(bits(out[0]), 0u);
}

}  // namespace
}  // namespace muser::contract
