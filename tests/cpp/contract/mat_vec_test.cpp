#include "contract/mat_vec.h"

#include <gtest/gtest.h>

#include "contract/embedding.h"
#include "errors.h"
#include "weights.h"

namespace muser::contract {
namespace {

using reference::bits;
using reference::kInfinity;
using reference::kNaN;
using reference::Random;

constexpr WeightType kQuantised[] = {WeightType::Q8_0, WeightType::Q4_K, WeightType::Q5_K,
                                     WeightType::Q6_K};
constexpr WeightType kFloat[] = {WeightType::F32, WeightType::F16, WeightType::BF16};

std::vector<float> activations(size_t n, Random& random) {
    std::vector<float> x(n);
    for (float& value : x) value = random.gaussian();
    return x;
}

std::vector<BlockForm> block_form(const std::vector<float>& x) {
    std::vector<BlockForm> blocks(x.size() / kBlock);
    quantise(x.data(), x.size(), blocks.data());
    return blocks;
}

float from_int(int64_t t) {
    return reference::round(t < 0, static_cast<uint64_t>(t < 0 ? -t : t), 0, false);
}

struct Sums {
    int64_t t = 0;
    int64_t m = 0;
};

// The sums element by element: no sub-block structure at all.
Sums element_sums(const reference::Unpacked& w, const BlockForm& x) {
    Sums sums;
    for (size_t i = 0; i < kBlock; ++i) {
        const int64_t q = 256 * int64_t{x.hi[i]} + x.lo[i];
        sums.t += int64_t{w.scale[i]} * w.w[i] * q;
        sums.m += int64_t{w.min[i]} * q;
    }
    return sums;
}

template <typename Block>
float expected_k(const void* row, const std::vector<BlockForm>& x, bool mins) {
    const Block* blocks = static_cast<const Block*>(row);
    float acc = 0;
    for (size_t b = 0; b < x.size(); ++b) {
        const Sums sums = element_sums(reference::unpack(blocks[b]), x[b]);
        acc =
            reference::fma(reference::mul(f16_to_f32(blocks[b].d), x[b].s), from_int(sums.t), acc);
        if constexpr (!std::is_same_v<Block, BlockQ6_K>) {
            const float dmin = reference::mul(f16_to_f32(blocks[b].dmin), x[b].s);
            if (mins) acc = reference::fma(-dmin, from_int(sums.m), acc);
        }
    }
    return acc;
}

float expected_q8_0(const void* row, const std::vector<BlockForm>& x) {
    const BlockQ8_0* blocks = static_cast<const BlockQ8_0*>(row);
    float acc = 0;
    for (size_t b = 0; b < x.size() * 8; ++b) {
        const BlockForm& form = x[b / 8];
        int64_t sum = 0;
        for (size_t i = 0; i < 32; ++i) {
            const size_t k = b % 8 * 32 + i;
            sum += blocks[b].qs[i] * (256 * int64_t{form.hi[k]} + form.lo[k]);
        }
        acc = reference::fma(reference::mul(f16_to_f32(blocks[b].d), form.s), from_int(sum), acc);
    }
    return acc;
}

float expected(WeightType type, const void* row, const std::vector<BlockForm>& x) {
    if (type == WeightType::Q4_K) return expected_k<BlockQ4_K>(row, x, true);
    if (type == WeightType::Q5_K) return expected_k<BlockQ5_K>(row, x, true);
    if (type == WeightType::Q6_K) return expected_k<BlockQ6_K>(row, x, false);
    return expected_q8_0(row, x);
}

TEST(MatVec, QuantisedRowsAgreeWithElementWiseIntegers) {
    Random random(21);
    for (const WeightType type : kQuantised) {
        for (const size_t n : {256u, 512u, 6656u}) {
            const std::vector<uint8_t> row = reference::random_row(type, n, random);
            const std::vector<BlockForm> x = block_form(activations(n, random));
            ASSERT_EQ(bits(row_dot(type, row.data(), x.data(), n)),
                      bits(expected(type, row.data(), x)))
                << weight_type_info(type).name << " " << n;
        }
    }
}

// Against f64 on the dequantised weights and the unquantised activations: what is lost is the
// activations' 16 bits.
TEST(MatVec, QuantisedRowsAreCloseToFloat64) {
    Random random(22);
    for (const WeightType type : kQuantised) {
        const size_t n = 4096;
        const std::vector<float> x = activations(n, random);
        const std::vector<uint8_t> row = reference::random_row(type, n, random);
        std::vector<float> w(n);
        dequantise_row(type, row.data(), n, w.data());
        double dot = 0;
        double size = 0;
        for (size_t k = 0; k < n; ++k) {
            dot += double{w[k]} * x[k];
            size += std::fabs(double{w[k]} * x[k]);
        }
        const float found = row_dot(type, row.data(), block_form(x).data(), n);
        EXPECT_NEAR(found, dot, 2e-6 * size) << weight_type_info(type).name;
    }
}

TEST(MatVec, TAndMAtTheirBounds) {
    BlockForm x;
    float ones[kBlock];
    for (float& value : ones) value = 32639.0f;
    quantise(ones, kBlock, &x);
    BlockForm negative;
    for (float& value : ones) value = -32639.0f;
    quantise(ones, kBlock, &negative);

    BlockQ4_K q4;
    std::memset(&q4, 0xff, sizeof q4);
    q4.d = q4.dmin = 0x3c00;  // 1
    EXPECT_EQ(superblock_sums(q4, x).t, int64_t{63} * 15 * 256 * 32639);
    EXPECT_EQ(superblock_sums(q4, negative).m, -int64_t{63} * 256 * 32639);
    EXPECT_LT(superblock_sums(q4, x).m, int64_t{1} << 30);

    BlockQ5_K q5;
    std::memset(&q5, 0xff, sizeof q5);
    q5.d = q5.dmin = 0x3c00;
    EXPECT_EQ(superblock_sums(q5, negative).t, -int64_t{63} * 31 * 256 * 32639);

    BlockQ6_K q6;
    std::memset(&q6, 0, sizeof q6);  // quants 0: weights -32
    for (int8_t& scale : q6.scales) scale = -128;
    q6.d = 0x3c00;
    EXPECT_EQ(superblock_sums(q6, x).t, int64_t{128} * 32 * 256 * 32639);
    EXPECT_EQ(superblock_sums(q6, negative).t, -int64_t{128} * 32 * 256 * 32639);
    EXPECT_LT(superblock_sums(q6, x).t, int64_t{1} << 35);
    EXPECT_EQ(superblock_sums(q6, x).m, 0);

    for (const BlockForm* form : {&x, &negative}) {
        EXPECT_EQ(bits(row_dot(WeightType::Q4_K, &q4, form, kBlock)),
                  bits(expected(WeightType::Q4_K, &q4, {*form})));
        EXPECT_EQ(bits(row_dot(WeightType::Q5_K, &q5, form, kBlock)),
                  bits(expected(WeightType::Q5_K, &q5, {*form})));
        EXPECT_EQ(bits(row_dot(WeightType::Q6_K, &q6, form, kBlock)),
                  bits(expected(WeightType::Q6_K, &q6, {*form})));
    }
}

TEST(MatVec, OneElementAtATimeFindsItsWeight) {
    Random random(23);
    const std::vector<uint8_t> q4 = reference::random_row(WeightType::Q4_K, kBlock, random);
    const std::vector<uint8_t> q5 = reference::random_row(WeightType::Q5_K, kBlock, random);
    const std::vector<uint8_t> q6 = reference::random_row(WeightType::Q6_K, kBlock, random);
    const auto& b4 = *reinterpret_cast<const BlockQ4_K*>(q4.data());
    const auto& b5 = *reinterpret_cast<const BlockQ5_K*>(q5.data());
    const auto& b6 = *reinterpret_cast<const BlockQ6_K*>(q6.data());
    const reference::Unpacked u4 = reference::unpack(b4);
    const reference::Unpacked u5 = reference::unpack(b5);
    const reference::Unpacked u6 = reference::unpack(b6);
    for (size_t i = 0; i < kBlock; ++i) {
        ASSERT_EQ(quant(b4, i), u4.w[i]) << i;
        ASSERT_EQ(quant(b5, i), u5.w[i]) << i;
        ASSERT_EQ(quant(b6, i) - 32, u6.w[i]) << i;
        ASSERT_EQ(scale_min(b4.scales, i / 32).scale, u4.scale[i]) << i;
        ASSERT_EQ(scale_min(b4.scales, i / 32).min, u4.min[i]) << i;
        float x[kBlock] = {};
        x[i] = 3.0f;
        BlockForm form;
        quantise(x, kBlock, &form);
        const int64_t q = block_q(form, i);
        ASSERT_EQ(superblock_sums(b5, form).t, int64_t{u5.scale[i]} * u5.w[i] * q) << i;
        ASSERT_EQ(superblock_sums(b5, form).m, int64_t{u5.min[i]} * q) << i;
        ASSERT_EQ(superblock_sums(b6, form).t, int64_t{u6.scale[i]} * u6.w[i] * q) << i;
    }
}

TEST(MatVec, TermsEnterInOrderAndSeparately) {
    // d*T = 2^60 and dmin*M = 2^60 in block 0, then a small block 1: the chain leaves the small
    // block whole, any other grouping loses it.
    BlockQ4_K row[2] = {};
    row[0].d = 0x7800;     // 2^15
    row[0].dmin = 0x7800;  // 2^15
    row[0].scales[0] = 1;  // sub-block 0: scale 1, min 1
    row[0].scales[4] = 1;
    row[0].qs[0] = 1;  // weight 1 at element 0
    row[1].d = 0x3c00;
    row[1].scales[0] = 1;
    row[1].qs[0] = 1;
    std::vector<float> x(512, 0.0f);
    x[0] = 0x1p60f;
    x[256] = 3.0f;
    const std::vector<BlockForm> form = block_form(x);
    EXPECT_EQ(row_dot(WeightType::Q4_K, row, form.data(), 512), 3.0f);
}

TEST(MatVec, ANonFiniteBlockReachesTheDot) {
    Random random(24);
    for (const WeightType type : kQuantised) {
        std::vector<float> x = activations(512, random);
        x[300] = -kInfinity;
        const std::vector<uint8_t> row = reference::random_row(type, 512, random);
        EXPECT_TRUE(std::isnan(row_dot(type, row.data(), block_form(x).data(), 512)));
    }
}

TEST(MatVec, HalfSubnormalScalesAreValues) {
    BlockQ8_0 row[8] = {};
    row[0].d = 1;  // 2^-24
    row[0].qs[0] = 100;
    std::vector<float> x(256, 0.0f);
    x[0] = 1.0f;
    EXPECT_EQ(row_dot(WeightType::Q8_0, row, block_form(x).data(), 256), 100 * 0x1p-24f);
}

TEST(MatVec, SmallScalesAreFlushed) {
    // d * s = 2^-24 * 2^-104 is subnormal, hence zero, although the product with T would not be.
    BlockQ8_0 row[8] = {};
    row[0].d = 1;
    row[0].qs[0] = 127;
    std::vector<float> x(256, 0.0f);
    x[0] = 20000 * 0x1p-104f;
    EXPECT_EQ(row_dot(WeightType::Q8_0, row, block_form(x).data(), 256), 0.0f);
}

float weight_at(WeightType type, const std::vector<uint8_t>& row, size_t k) {
    if (type == WeightType::F32) {
        float value = 0;
        std::memcpy(&value, row.data() + 4 * k, 4);
        return value;
    }
    const auto half = static_cast<uint16_t>(row[2 * k] | row[2 * k + 1] << 8);
    return type == WeightType::F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

TEST(MatVec, FloatRowsOfAnyLengthAreThirtyTwoChains) {
    Random random(25);
    for (const WeightType type : kFloat) {
        for (const size_t n : {1u, 7u, 31u, 32u, 33u, 100u, 1024u}) {
            const std::vector<uint8_t> row = reference::random_row(type, n, random);
            const std::vector<float> x = activations(n, random);
            std::vector<float> partials(32, 0.0f);
            double dot = 0;
            for (size_t k = 0; k < n; ++k) {
                const float w = weight_at(type, row, k);
                partials[k % 32] = reference::fma(w, x[k], partials[k % 32]);
                dot += double{w} * x[k];
            }
            const float found = row_dot(type, row.data(), x.data(), n);
            ASSERT_EQ(bits(found), bits(reference::tree(partials)))
                << weight_type_info(type).name << " " << n;
            EXPECT_NEAR(found, dot, 1e-4);
        }
    }
}

TEST(MatVec, RowsAreIndependent) {
    Random random(26);
    for (const WeightTypeInfo& info : kWeightTypes) {
        const size_t n = 512;
        const std::vector<float> x = activations(n, random);
        const std::vector<BlockForm> form = block_form(x);
        const std::vector<uint8_t> matrix = reference::random_row(info.type, 3 * n, random);
        float y[3];
        if (info.quantised) {
            mat_vec(info.type, matrix.data(), 3, n, form.data(), y);
        } else {
            mat_vec(info.type, matrix.data(), 3, n, x.data(), y);
        }
        for (size_t r = 0; r < 3; ++r) {
            const uint8_t* row = matrix.data() + r * row_bytes(info.type, n);
            const float dot = info.quantised ? row_dot(info.type, row, form.data(), n)
                                             : row_dot(info.type, row, x.data(), n);
            EXPECT_EQ(bits(y[r]), bits(dot));
        }
    }
}

TEST(MatVec, WrongShapesAndFormsAreRefused) {
    Random random(27);
    const std::vector<float> x = activations(512, random);
    const std::vector<BlockForm> form = block_form(x);
    const std::vector<uint8_t> row = reference::random_row(WeightType::Q8_0, 512, random);
    EXPECT_THROW(row_dot(WeightType::Q8_0, row.data(), form.data(), 32), Error);
    EXPECT_THROW(row_dot(WeightType::Q8_0, row.data(), x.data(), 512), Error);
    EXPECT_THROW(row_dot(WeightType::F32, x.data(), form.data(), 512), Error);
}

TEST(Blocks, TypesAreGgmls) {
    EXPECT_EQ(row_bytes(WeightType::Q4_K, 6656), 26u * 144);
    EXPECT_EQ(row_bytes(WeightType::Q5_K, 6656), 26u * 176);
    EXPECT_EQ(row_bytes(WeightType::Q6_K, 6656), 26u * 210);
    EXPECT_EQ(row_bytes(WeightType::Q8_0, 6656), 208u * 34);
    EXPECT_EQ(row_bytes(WeightType::BF16, 7), 14u);
    EXPECT_EQ(find_weight_type(2), nullptr);
    EXPECT_STREQ(find_weight_type(14)->name, "Q6_K");
    for (const WeightTypeInfo& info : kWeightTypes) {
        EXPECT_EQ(&weight_type_info(info.type), &info);
    }
}

}  // namespace
}  // namespace muser::contract
