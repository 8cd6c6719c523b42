#include "contract/pointwise.h"

#include <gtest/gtest.h>

#include "contract/embedding.h"
#include "contract/f32.h"
#include "contract/ftz.h"
#include "contract/norm.h"
#include "errors.h"
#include "metal/kernels/math.h"
#include "weights.h"

namespace muser::contract {
namespace {

using reference::bits;
using reference::from_bits;
using reference::kInfinity;
using reference::kNaN;
using reference::Random;

TEST(Pointwise, SigmoidIsTheQuotientOfRoundedParts) {
    Random random(61);
    for (int i = 0; i < 100000; ++i) {
        const float x = random.gaussian() * 30.0f;
        const float denominator = reference::add(1.0f, muser_exp(-x));
        if (denominator == kInfinity) continue;
        ASSERT_EQ(bits(sigmoid(x)), bits(reference::div(1.0f, denominator))) << x;
        ASSERT_NEAR(sigmoid(x), 1 / (1 + std::exp(-double{x})), 2e-7);
    }
    EXPECT_EQ(sigmoid(0.0f), 0.5f);
    EXPECT_EQ(bits(sigmoid(-100.0f)), 0u);  // exp overflows
    EXPECT_EQ(bits(sigmoid(-88.0f)), 0u);   // the quotient is subnormal
    EXPECT_EQ(sigmoid(100.0f), 1.0f);
    EXPECT_TRUE(std::isnan(sigmoid(kNaN)));
}

TEST(Pointwise, SiluDividesBeforeItMultiplies) {
    Random random(62);
    int differs_from_sigmoid_form = 0;
    for (int i = 0; i < 100000; ++i) {
        const float g = random.gaussian() * 4.0f;
        const float u = random.gaussian();
        const float denominator = reference::add(1.0f, muser_exp(-g));
        const float expected = reference::mul(reference::div(g, denominator), u);
        ASSERT_EQ(bits(silu_mul(g, u)), bits(expected)) << g << " " << u;
        const double exact = double{g} * u / (1 + std::exp(-double{g}));
        ASSERT_NEAR(silu_mul(g, u), exact, 4e-7 * std::fabs(exact)) << g << " " << u;
        differs_from_sigmoid_form += bits(mul(mul(g, sigmoid(g)), u)) != bits(expected);
    }
    EXPECT_GT(differs_from_sigmoid_form, 1000);
    EXPECT_EQ(bits(silu_mul(-200.0f, 1.0f)), 0x80000000u);
    EXPECT_EQ(silu_mul(200.0f, 0.5f), 100.0f);
    EXPECT_TRUE(std::isnan(silu_mul(-kInfinity, 1.0f)));
}

// Kernels use math.h's compositions under the hardware's mode.
TEST(Pointwise, TheHeadersCompositionsGiveTheSameBitsUnderTheMode) {
    Random random(63);
    std::vector<float> g(20000);
    std::vector<float> u(g.size());
    std::vector<float> found(2 * g.size());
    for (size_t i = 0; i < g.size(); ++i) {
        g[i] = random.gaussian() * 60.0f;
        u[i] = random.with_exponent(0, 200);
    }
    {
        const FlushSubnormals mode;
        for (size_t i = 0; i < g.size(); ++i) {
            found[2 * i] = muser_sigmoid(g[i]);
            found[2 * i + 1] = muser_silu_mul(g[i], u[i]);
        }
    }
    for (size_t i = 0; i < g.size(); ++i) {
        ASSERT_EQ(bits(found[2 * i]), bits(sigmoid(g[i]))) << g[i];
        ASSERT_EQ(bits(found[2 * i + 1]), bits(silu_mul(g[i], u[i]))) << g[i] << " " << u[i];
    }
}

TEST(Pointwise, VectorsAreElementWiseAndInPlace) {
    Random random(64);
    std::vector<float> a(77);
    std::vector<float> b(77);
    for (float& x : a) x = random.gaussian();
    for (float& x : b) x = random.gaussian();
    std::vector<float> gated = a;
    std::vector<float> activated = a;
    sigmoid_gate(gated.data(), b.data(), 77, gated.data());
    silu_mul(activated.data(), b.data(), 77, activated.data());
    for (size_t i = 0; i < 77; ++i) {
        ASSERT_EQ(bits(gated[i]), bits(reference::mul(a[i], sigmoid(b[i]))));
        ASSERT_EQ(bits(activated[i]), bits(silu_mul(a[i], b[i])));
    }
}

TEST(Softcap, ScalesThenCaps) {
    Random random(65);
    const float scale = 0.19611613f;
    const float cap = 20.0f;
    std::vector<float> logits(1000);
    for (float& x : logits) x = random.gaussian() * 100.0f;
    const std::vector<float> dots = logits;
    EXPECT_FALSE(softcap(logits.data(), logits.size(), scale, cap));
    for (size_t i = 0; i < dots.size(); ++i) {
        const float inner = reference::div(reference::mul(dots[i], scale), cap);
        ASSERT_EQ(bits(logits[i]), bits(reference::mul(cap, muser_tanh(inner))));
        const double exact = 20 * std::tanh(double{dots[i]} * double{scale} / 20);
        ASSERT_NEAR(logits[i], exact, 5e-6);
    }
    EXPECT_EQ(softcap(1e30f, scale, cap), cap);
}

TEST(Softcap, FlagsWhatTheCapWouldHide) {
    for (const float bad : {kInfinity, -kInfinity, kNaN}) {
        for (const size_t at : {0u, 9u}) {
            std::vector<float> logits(10, 1.0f);
            logits[at] = bad;
            EXPECT_TRUE(softcap(logits.data(), 10, 0.5f, 20.0f)) << bad;
            EXPECT_EQ(logits[4], softcap(1.0f, 0.5f, 20.0f));
        }
    }
    std::vector<float> largest(10, 0x1.fffffep127f);
    EXPECT_FALSE(softcap(largest.data(), 10, 0.5f, 20.0f));
}

TEST(Argmax, LowestIdOnATie) {
    const auto winner = [](std::vector<float> x) { return argmax(x.data(), x.size()); };
    EXPECT_EQ(winner({1, 3, 2, 3}), 1u);
    EXPECT_EQ(winner({-5, -2, -2}), 1u);
    EXPECT_EQ(winner({-0.0f, 0.0f}), 0u);
    EXPECT_EQ(winner({0.0f, from_bits(1)}), 0u);  // a subnormal is a zero
    EXPECT_EQ(winner({kNaN, 1, kNaN, 2}), 3u);
    EXPECT_EQ(winner({-kInfinity, -kInfinity}), 0u);
    EXPECT_EQ(winner({7}), 0u);
}

float product(float a, int b) { return reference::mul(a, static_cast<float>(b)); }

TEST(Embedding, QuantisedRowsAreDequantisedInThePinnedOrder) {
    Random random(66);
    const size_t n = 512;
    std::vector<float> out(n);
    const auto compare = [&](WeightType type, auto block_of, bool mins) {
        const std::vector<uint8_t> row = reference::random_row(type, n, random);
        dequantise_row(type, row.data(), n, out.data());
        const auto* blocks = block_of(row.data());
        for (size_t b = 0; b < n / kBlock; ++b) {
            const reference::Unpacked w = reference::unpack(blocks[b]);
            const float d = f16_to_f32(blocks[b].d);
            for (size_t i = 0; i < kBlock; ++i) {
                float expected = product(product(d, w.scale[i]), w.w[i]);
                if constexpr (requires { blocks[b].dmin; }) {
                    const float dmin = f16_to_f32(blocks[b].dmin);
                    if (mins) expected = reference::add(expected, -product(dmin, w.min[i]));
                }
                ASSERT_EQ(bits(out[b * kBlock + i]), bits(expected)) << i;
            }
        }
    };
    const auto as = []<typename Block>(const Block*) {
        return [](const uint8_t* row) { return reinterpret_cast<const Block*>(row); };
    };
    compare(WeightType::Q4_K, as(static_cast<BlockQ4_K*>(nullptr)), true);
    compare(WeightType::Q5_K, as(static_cast<BlockQ5_K*>(nullptr)), true);
    compare(WeightType::Q6_K, as(static_cast<BlockQ6_K*>(nullptr)), false);

    const std::vector<uint8_t> row = reference::random_row(WeightType::Q8_0, n, random);
    dequantise_row(WeightType::Q8_0, row.data(), n, out.data());
    const auto* blocks = reinterpret_cast<const BlockQ8_0*>(row.data());
    for (size_t i = 0; i < n; ++i) {
        const BlockQ8_0& block = blocks[i / 32];
        ASSERT_EQ(bits(out[i]), bits(product(f16_to_f32(block.d), block.qs[i % 32])));
    }
    EXPECT_THROW(dequantise_row(WeightType::Q4_K, row.data(), 300, out.data()), Error);
}

TEST(Embedding, FloatRowsAreExactAndTheNormFollows) {
    Random random(67);
    for (const WeightType type : {WeightType::F32, WeightType::F16, WeightType::BF16}) {
        const size_t n = 48;
        const std::vector<uint8_t> row = reference::random_row(type, n, random);
        std::vector<float> bare(n);
        dequantise_row(type, row.data(), n, bare.data());
        for (size_t k = 0; k < n; ++k) {
            float expected = 0;
            if (type == WeightType::F32) {
                std::memcpy(&expected, row.data() + 4 * k, 4);
            } else {
                const auto half = static_cast<uint16_t>(row[2 * k] | row[2 * k + 1] << 8);
                expected = type == WeightType::F16 ? f16_to_f32(half) : bf16_to_f32(half);
            }
            ASSERT_EQ(bits(bare[k]), bits(expected));
        }
        std::vector<float> normed(n);
        embed(type, row.data(), n, 1e-5f, normed.data());
        rms_norm(bare.data(), nullptr, n, 1e-5f, bare.data());
        EXPECT_EQ(normed, bare);
        double squares = 0;
        for (const float x : normed) squares += double{x} * x;
        EXPECT_NEAR(squares / static_cast<double>(n), 1.0, 1e-4);
    }
}

}  // namespace
}  // namespace muser::contract
