#include "contract/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "contract/pointwise.h"
#include "errors.h"
#include "reference.h"

namespace muser::contract {
namespace {

using reference::bits;
using reference::kInfinity;
using reference::kNaN;
using reference::Random;

struct KnownAnswer {
    uint32_t counter[4];
    uint32_t key[2];
    uint32_t words[4];
};

// The known answers that Random123 publishes for philox4x32 with 10 rounds.
constexpr KnownAnswer kKnownAnswers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Philox, GivesThePublishedWords) {
    for (const KnownAnswer& known : kKnownAnswers) {
        const Philox found = philox(known.counter, known.key);
        for (size_t i = 0; i < 4; ++i) EXPECT_EQ(found.words[i], known.words[i]) << i;
    }
}

TEST(Philox, UniformsAreExactAndUseBothHalvesOfSeedAndPosition) {
    EXPECT_EQ(uniform(0, 0), static_cast<float>(0x6627e8d5 >> 8) / 16777216.0f);
    EXPECT_NE(uniform(1, 0), uniform(uint64_t{1} << 32, 0));
    EXPECT_NE(uniform(0, 1), uniform(0, uint64_t{1} << 32));
    const uint32_t counter[4] = {7, 9, 0, 0};
    const uint32_t key[2] = {3, 5};
    const float expected = static_cast<float>(philox(counter, key).words[0] >> 8) * 0x1p-24f;
    EXPECT_EQ(uniform((uint64_t{5} << 32) + 3, (uint64_t{9} << 32) + 7), expected);
    double sum = 0;
    for (uint64_t i = 0; i < 20000; ++i) {
        const float u = uniform(42, i);
        ASSERT_GE(u, 0.0f);
        ASSERT_LT(u, 1.0f);
        sum += u;
    }
    EXPECT_NEAR(sum / 20000, 0.5, 0.01);
}

float padded_tree(std::vector<float> p) {
    size_t n = 1;
    while (n < p.size()) n *= 2;
    p.resize(n, 0.0f);
    return reference::tree(p);
}

// The order of sampling.h again, on pairs and with integer arithmetic.
uint32_t expected(const std::vector<float>& logits, const SamplingParams& params,
                  uint64_t position) {
    std::vector<std::pair<float, uint32_t>> order;
    for (uint32_t id = 0; id < logits.size(); ++id) order.emplace_back(-logits[id], id);
    std::sort(order.begin(), order.end());
    if (params.top_k != 0 && params.top_k < order.size()) order.resize(params.top_k);
    std::vector<float> p;
    const float top = reference::div(-order[0].first, params.temperature);
    for (const auto& [negated, id] : order) {
        p.push_back(exp(reference::add(reference::div(-negated, params.temperature), -top)));
    }
    if (params.top_p < 1) {
        const float bound = reference::mul(params.top_p, padded_tree(p));
        float running = 0;
        size_t kept = 0;
        while (kept < p.size() && !(running >= bound)) {
            running = reference::add(running, p[kept]);
            ++kept;
        }
        p.resize(std::max<size_t>(kept, 1));
    }
    const float target = reference::mul(uniform(params.seed, position), padded_tree(p));
    float running = 0;
    for (size_t i = 0; i < p.size(); ++i) {
        running = reference::add(running, p[i]);
        if (running > target) return order[i].second;
    }
    size_t last = p.size() - 1;
    while (last > 0 && p[last] == 0) --last;
    return order[last].second;
}

TEST(Sampling, FollowsTheStatedOrder) {
    Random random(71);
    const float temperatures[] = {0.3f, 1.0f, 1.7f};
    const uint32_t top_ks[] = {0, 1, 40, 1000};
    const float top_ps[] = {1.0f, 0.95f, 0.5f, 1e-6f};
    for (int round = 0; round < 4; ++round) {
        std::vector<float> logits(200 + random.below(100));
        for (float& x : logits) x = std::nearbyint(random.gaussian() * 16.0f) / 8.0f;  // ties
        for (const float temperature : temperatures) {
            for (const uint32_t top_k : top_ks) {
                for (const float top_p : top_ps) {
                    const SamplingParams params{temperature, top_k, top_p, random.next()};
                    for (uint64_t position = 0; position < 10; ++position) {
                        ASSERT_EQ(sample(logits.data(), logits.size(), params, position),
                                  expected(logits, params, position));
                    }
                }
            }
        }
    }
}

TEST(Sampling, FrequenciesAreTheSoftmax) {
    const std::vector<float> logits = {1.0f, 3.0f, 2.0f, -50.0f};
    std::vector<int> counts(4, 0);
    for (uint64_t position = 0; position < 20000; ++position) {
        ++counts[sample(logits.data(), 4, {1.0f, 0, 1.0f, 5}, position)];
    }
    const double total = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
    for (const size_t id : {0u, 1u, 2u}) {
        EXPECT_NEAR(counts[id] / 20000.0, std::exp(double{logits[id]}) / total, 0.015) << id;
    }
    EXPECT_EQ(counts[3], 0);
}

TEST(Sampling, LimitsBind) {
    const std::vector<float> logits = {2.0f, 2.0f, 1.0f, 2.0f};
    std::vector<int> counts(4, 0);
    for (uint64_t position = 0; position < 500; ++position) {
        ++counts[sample(logits.data(), 4, {1.0f, 2, 1.0f, 9}, position)];
        EXPECT_EQ(sample(logits.data(), 4, {0.0f, 0, 1.0f, 9}, position), 0u);   // greedy
        EXPECT_EQ(sample(logits.data(), 4, {1.0f, 1, 1.0f, 9}, position), 0u);   // one left
        EXPECT_EQ(sample(logits.data(), 4, {1.0f, 0, 0.01f, 9}, position), 0u);  // nucleus of one
        EXPECT_NE(sample(logits.data(), 4, {1.0f, 0, 0.85f, 9}, position), 2u);  // 0.89 at three
        EXPECT_EQ(sample(logits.data(), 1, {1.0f, 0, 0.5f, 9}, position), 0u);
    }
    EXPECT_GT(counts[0], 150);  // ids 0 and 1 are the two, not 3
    EXPECT_GT(counts[1], 150);
    EXPECT_EQ(counts[2] + counts[3], 0);
}

TEST(Sampling, TiesOfTheRunningSum) {
    const std::vector<float> equal(4, 1.5f);
    // The bound 0.5 * 4 is reached by the second candidate, which is the last one kept.
    std::vector<int> counts(4, 0);
    for (uint64_t position = 0; position < 100; ++position) {
        ++counts[sample(equal.data(), 4, {1.0f, 0, 0.5f, 3}, position)];
    }
    EXPECT_GT(counts[1], 0);
    EXPECT_EQ(counts[2] + counts[3], 0);
    // A running sum that only equals the target does not choose: 0.75 * 4 and 0.25 * 4.
    ASSERT_EQ(uniform(0, 150078), 0.75f);
    EXPECT_EQ(sample(equal.data(), 4, {1.0f, 0, 1.0f, 0}, 150078), 3u);
    ASSERT_EQ(uniform(0, 630968), 0.25f);
    EXPECT_EQ(sample(equal.data(), 4, {1.0f, 0, 1.0f, 0}, 630968), 1u);
}

TEST(Sampling, TinyTemperaturesChooseTheTop) {
    const std::vector<float> logits = {-3.0f, 5.0f, 4.999f};
    for (uint64_t position = 0; position < 100; ++position) {
        EXPECT_EQ(sample(logits.data(), 3, {1e-5f, 0, 1.0f, 1}, position), 1u);
        EXPECT_EQ(sample(logits.data(), 3, {0x1p-126f, 0, 0.9f, 1}, position), 1u);
    }
}

TEST(Sampling, BadInputsAreTypedErrors) {
    const float fine[2] = {1.0f, 2.0f};
    EXPECT_THROW(sample(fine, 2, {-1.0f, 0, 1.0f, 0}, 0), ConfigError);
    EXPECT_THROW(sample(fine, 2, {kNaN, 0, 1.0f, 0}, 0), ConfigError);
    EXPECT_THROW(sample(fine, 2, {kInfinity, 0, 1.0f, 0}, 0), ConfigError);
    EXPECT_THROW(sample(fine, 2, {1.0f, 0, 0.0f, 0}, 0), ConfigError);
    EXPECT_THROW(sample(fine, 2, {1.0f, 0, 1.5f, 0}, 0), ConfigError);
    EXPECT_THROW(sample(fine, 0, {}, 0), ConfigError);
    for (const float bad : {kNaN, kInfinity, -kInfinity}) {
        const float logits[2] = {1.0f, bad};
        EXPECT_THROW(sample(logits, 2, {}, 0), NonFiniteError);
    }
}

}  // namespace
}  // namespace muser::contract
