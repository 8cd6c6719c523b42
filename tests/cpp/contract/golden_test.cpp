// Digests of a canned set of contract outputs. They pin contract 1 to the bit: any compiler, any
// optimisation level and either kind of fma must reproduce them, and changing a rule changes one.
// If a rule changes on purpose, the contract's number changes with it (docs/numerics.md, "What is
// pinned").
#include <gtest/gtest.h>

#include <bit>

#include "contract/attention.h"
#include "contract/embedding.h"
#include "contract/fma.h"
#include "contract/mat_vec.h"
#include "contract/norm.h"
#include "contract/pointwise.h"
#include "contract/rope.h"
#include "contract/sampling.h"
#include "weights.h"

namespace muser::contract {
namespace {

using reference::Random;

// FNV-1a over the little-endian bytes of 32-bit words.
class Digest {
  public:
    void word(uint32_t value) {
        for (int i = 0; i < 4; ++i) {
            state_ = (state_ ^ (value & 255)) * 0x100000001b3u;
            value >>= 8;
        }
    }
    void number(float value) { word(std::bit_cast<uint32_t>(value)); }
    void numbers(const std::vector<float>& values) {
        for (const float value : values) number(value);
    }
    uint64_t value() const { return state_; }

  private:
    uint64_t state_ = 0xcbf29ce484222325u;
};

std::vector<float> gaussians(size_t n, float size, Random& random) {
    std::vector<float> x(n);
    for (float& value : x) value = random.gaussian() * size;
    return x;
}

// Operands are at most 2^126 apart from overflow, so that no NaN pattern enters a digest.
uint64_t arithmetic() {
    Random random(101);
    Digest digest;
    for (int i = 0; i < 50000; ++i) {
        const float a = random.with_exponent(1, 180);
        const float b = random.with_exponent(1, 180);
        const float c = random.with_exponent(1, 250);
        digest.number(fma(a, b, c));
        digest.number(mul(a, b));
        digest.number(div(a, b));
        digest.number(sub(a, b));
        digest.number(sqrt(flush(a < 0 ? -a : a)));
        digest.word(f32_to_f16(a));
    }
    return digest.value();
}

uint64_t pointwise() {
    Random random(102);
    Digest digest;
    for (int i = 0; i < 50000; ++i) {
        const float x = random.gaussian() * 20.0f;
        const float y = random.with_exponent(100, 140);
        for (const float z : {x, y}) {
            digest.number(exp(z));
            digest.number(tanh(z));
            digest.number(sigmoid(z));
            digest.number(softcap(z, 0.19611613f, 20.0f));
        }
        digest.number(silu_mul(x, y));
    }
    return digest.value();
}

uint64_t activations() {
    Random random(103);
    Digest digest;
    for (int n = 0; n < 100; ++n) {
        std::vector<float> x = gaussians(kBlock, 1.0f, random);
        for (float& value : x) value *= random.with_exponent(1 + 2 * static_cast<uint32_t>(n), 250);
        for (float& value : x) value = non_finite(value) ? 1.0f : value;
        float s = 0;
        int16_t q[kBlock];
        quantise_block(x.data(), &s, q);
        digest.number(s);
        for (const int16_t value : q) digest.word(static_cast<uint32_t>(int32_t{value}));
    }
    return digest.value();
}

uint64_t products(WeightType type) {
    Random random(104);
    Digest digest;
    const size_t n = 1536;
    for (int r = 0; r < 20; ++r) {
        const std::vector<float> x = gaussians(n, 2.0f, random);
        const std::vector<uint8_t> row = reference::random_row(type, n, random);
        std::vector<BlockForm> form(n / kBlock);
        quantise(x.data(), n, form.data());
        const bool quantised = weight_type_info(type).quantised;
        digest.number(quantised ? row_dot(type, row.data(), form.data(), n)
                                : row_dot(type, row.data(), x.data(), n));
        std::vector<float> y(n);
        embed(type, row.data(), n, 1e-5f, y.data());
        digest.numbers(y);
    }
    return digest.value();
}

uint64_t norms() {
    Random random(105);
    Digest digest;
    for (const size_t n : {1u, 16u, 31u, 128u, 1000u, 1024u, 1500u, 6656u}) {
        const std::vector<float> x = gaussians(n, 3.0f, random);
        const std::vector<float> w = gaussians(n, 1.0f, random);
        std::vector<float> y(n);
        rms_norm(x.data(), w.data(), n, 1e-5f, y.data());
        digest.numbers(y);
        rms_norm_4sg(x.data(), w.data(), n, 1e-8f, y.data());
        residual_add(x.data(), y.data(), n, y.data());
        digest.numbers(y);
    }
    return digest.value();
}

uint64_t attentions() {
    Random random(106);
    Digest digest;
    for (const size_t head_dim : {16u, 64u, 128u}) {
        const std::vector<float> q = gaussians(head_dim, 3.0f, random);
        const std::vector<float> k = gaussians(head_dim * 300, 1.0f, random);
        std::vector<uint16_t> v;
        for (const float value : gaussians(head_dim * 300, 1.0f, random)) {
            v.push_back(f32_to_f16(value));
        }
        const KvRows keys{k.data(), KvType::F32, head_dim, 300, 0, 0};
        const KvRows values{v.data(), KvType::F16, head_dim, 300, 0, 0};
        std::vector<float> out(head_dim);
        for (const int64_t begin : {0, 50, 200}) {
            attention(q.data(), keys, values, begin, 290, head_dim, out.data());
            digest.numbers(out);
        }
    }
    return digest.value();
}

uint64_t rotations() {
    Random random(107);
    Digest digest;
    double inv[64];
    for (int i = 0; i < 64; ++i) inv[i] = 1.0 / (1.0 + i * i * 30.0);
    for (int64_t pos = 0; pos < (1 << 20); pos += 4099) {
        float c[64];
        float s[64];
        rope_table(pos, inv, 64, c, s);
        std::vector<float> x = gaussians(128, 1.0f, random);
        rope(x.data(), c, s, 64);
        digest.numbers(x);
    }
    return digest.value();
}

uint64_t samples() {
    Random random(108);
    Digest digest;
    for (uint64_t position = 0; position < 200; ++position) {
        const std::vector<float> logits = gaussians(500, 3.0f, random);
        digest.word(sample(logits.data(), 500, {0.8f, 64, 0.95f, 7}, position));
        digest.word(sample(logits.data(), 500, {1.0f, 0, 1.0f, 7}, position));
        digest.word(argmax(logits.data(), 500));
    }
    return digest.value();
}

TEST(Golden, Arithmetic) { EXPECT_EQ(arithmetic(), 0x16e98bada6f887ecu); }
TEST(Golden, Pointwise) { EXPECT_EQ(pointwise(), 0xf8ed5a7973ea9726u); }
TEST(Golden, Activations) { EXPECT_EQ(activations(), 0x6f994fed6ecf3a9au); }
TEST(Golden, ProductsF32) { EXPECT_EQ(products(WeightType::F32), 0x61b66dbdd35cb477u); }
TEST(Golden, ProductsF16) { EXPECT_EQ(products(WeightType::F16), 0x37cb07afa00e2057u); }
TEST(Golden, ProductsBf16) { EXPECT_EQ(products(WeightType::BF16), 0x8e13e21f5d601266u); }
TEST(Golden, ProductsQ8_0) { EXPECT_EQ(products(WeightType::Q8_0), 0xc57f03ecc4cfb5a2u); }
TEST(Golden, ProductsQ4_K) { EXPECT_EQ(products(WeightType::Q4_K), 0xe6ce695aced3f827u); }
TEST(Golden, ProductsQ5_K) { EXPECT_EQ(products(WeightType::Q5_K), 0xe0514dfccb3f3268u); }
TEST(Golden, ProductsQ6_K) { EXPECT_EQ(products(WeightType::Q6_K), 0x3c16eb4cca607960u); }
TEST(Golden, Norms) { EXPECT_EQ(norms(), 0x13d4b99a58e8a5ffu); }
TEST(Golden, Attentions) { EXPECT_EQ(attentions(), 0x3ddf2c82a5174651u); }
TEST(Golden, Rotations) { EXPECT_EQ(rotations(), 0xfb5d163028779725u); }
TEST(Golden, Samples) { EXPECT_EQ(samples(), 0xe94942b98d811857u); }

}  // namespace
}  // namespace muser::contract
