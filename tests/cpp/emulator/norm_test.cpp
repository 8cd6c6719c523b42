// Norms, block form and the fused norm boundaries against the contract.
#include "contract/norm.h"

#include "kernel_run.h"

namespace muser::emulator_test {
namespace {

constexpr float kEps = 1e-5f;
constexpr float kPostEps = 1e-8f;

std::vector<float> normed(const std::vector<float>& x, const std::vector<float>* weight, float eps,
                          bool four_groups = false) {
    std::vector<float> y(x.size());
    const float* w = weight == nullptr ? nullptr : weight->data();
    (four_groups ? contract::rms_norm_4sg : contract::rms_norm)(x.data(), w, x.size(), eps,
                                                                y.data());
    return y;
}

TEST(Norm, WithoutWeight) {
    std::mt19937 random(1);
    for (const size_t n : {1u, 31u, 32u, 33u, 255u, 1000u, 1023u, 1024u, 1025u, 2500u}) {
        const auto x = random_floats(n, random);
        expect_kernels([&](Recording& r) {
            const auto y = r.machine().blank(n * 4);
            r.dispatch("rms_norm_f32", NormArgs{static_cast<uint32_t>(n), 0, kEps}, 1, 1,
                       {reads(1, r.machine().upload(x)), writes(2, y)});
            r.expect(y, normed(x, nullptr, kEps));
        });
    }
}

TEST(Norm, WithWeightAndBlockForm) {
    std::mt19937 random(2);
    for (const size_t n : {256u, 768u, 1024u, 3328u}) {
        for (const Values kind : kAllValues) {
            for (const bool four_groups : {false, true}) {
                const auto x = random_floats(n, random, kind);
                const auto w = random_floats(n, random);
                const auto expected = normed(x, &w, kEps, four_groups);
                expect_kernels([&](Recording& r) {
                    const auto y = r.machine().blank(n * 4);
                    const auto form = r.machine().blank(MUSER_BLOCK_FORM_BYTES(n));
                    r.dispatch(
                        four_groups ? "rms_norm_mul_4sg_b16" : "rms_norm_mul_b16",
                        NormArgs{static_cast<uint32_t>(n), static_cast<uint32_t>(n / 256), kEps}, 1,
                        1,
                        {reads(1, r.machine().upload(x)), reads(2, r.machine().upload(w)),
                         writes(3, y), writes(4, form)});
                    r.expect(y, expected, "y");
                    r.expect_bits(form, block_form(expected), "block form");
                });
            }
        }
    }
}

TEST(Norm, WithWeightAlone) {
    std::mt19937 random(3);
    for (const size_t n : {5u, 96u, 1100u}) {
        const auto x = random_floats(n, random);
        const auto w = random_floats(n, random);
        expect_kernels([&](Recording& r) {
            const auto y = r.machine().blank(n * 4);
            r.dispatch("rms_norm_mul_b16", NormArgs{static_cast<uint32_t>(n), 0, kEps}, 1, 1,
                       {reads(1, r.machine().upload(x)), reads(2, r.machine().upload(w)),
                        writes(3, y), unused(4, y)});
            r.expect(y, normed(x, &w, kEps));
        });
    }
}

TEST(Norm, AddedToTheResidual) {
    std::mt19937 random(4);
    for (const size_t n : {7u, 256u, 1024u, 2100u}) {
        for (const Values kind : {Values::ordinary, Values::sparse}) {
            const auto x = random_floats(n, random, kind);
            const auto w = random_floats(n, random);
            const auto h = random_floats(n, random, kind);
            auto expected = normed(x, &w, kPostEps);
            contract::residual_add(h.data(), expected.data(), n, expected.data());
            expect_kernels([&](Recording& r) {
                const auto residual = r.machine().upload(h);
                r.dispatch("rms_norm_add_f32", NormArgs{static_cast<uint32_t>(n), 0, kPostEps}, 1,
                           1,
                           {reads(1, r.machine().upload(x)), reads(2, r.machine().upload(w)),
                            updates(3, residual)});
                r.expect(residual, expected);
            });
        }
    }
}

// A comparison of bits sees the reduction that the contract does not have.
TEST(Norm, TheInexactReductionIsSeen) {
    std::mt19937 random(8);
    int seen = 0;
    for (int i = 0; i < 40; ++i) {
        const auto x = random_floats(2816, random);
        const auto w = random_floats(2816, random);
        Machine machine;
        Recording r(machine);
        const auto y = machine.blank(x.size() * 4);
        r.dispatch(
            "rms_norm_mul_4sg_b16", NormArgs{static_cast<uint32_t>(x.size()), 0, kEps}, 1, 1,
            {reads(1, machine.upload(x)), reads(2, machine.upload(w)), writes(3, y), unused(4, y)});
        r.run();
        const auto found = machine.download<float>(y);
        EXPECT_EQ(found, normed(x, &w, kEps, true));
        seen += found != normed(x, &w, kEps, false);
    }
    // Often enough both sums lead to the same scale.
    EXPECT_GT(seen, 3);
}

void expect_boundary(size_t n, bool four_groups, Values kind, std::mt19937& random) {
    const auto x = random_floats(n, random, kind);
    const auto post = random_floats(n, random, kind);
    const auto h = random_floats(n, random, kind);
    const auto w = random_floats(n, random, kind);
    auto residual = normed(x, &post, kPostEps, four_groups);
    contract::residual_add(h.data(), residual.data(), n, residual.data());
    const auto y = normed(residual, &w, kEps, four_groups);
    expect_kernels([&](Recording& r) {
        const auto out = r.machine().blank(n * 4);
        const auto form = r.machine().blank(MUSER_BLOCK_FORM_BYTES(n));
        const auto state = r.machine().upload(h);
        r.dispatch(
            four_groups ? "rms_norm_add_norm_4sg_b16" : "rms_norm_add_norm_b16",
            DualNormArgs{static_cast<uint32_t>(n), static_cast<uint32_t>(n / 256), kPostEps, kEps},
            1, 1,
            {reads(1, r.machine().upload(x)), reads(2, r.machine().upload(post)), updates(3, state),
             reads(4, r.machine().upload(w)), writes(5, out), writes(6, form)});
        r.expect(state, residual, "residual");
        r.expect(out, y, "y");
        r.expect_bits(form, block_form(y), "block form");
    });
}

TEST(Norm, BoundaryInOneKernel) {
    std::mt19937 random(5);
    for (const size_t n : {256u, 1024u, 2816u}) {
        for (const bool four_groups : {false, true}) {
            expect_boundary(n, four_groups, Values::ordinary, random);
        }
    }
}

void expect_head_norm(uint32_t heads, uint32_t dim, std::mt19937& random) {
    const auto x = random_floats(heads * dim, random);
    const auto w = random_floats(dim, random);
    std::vector<float> expected(x.size());
    for (uint32_t h = 0; h < heads; ++h) {
        contract::rms_norm(&x[h * dim], w.data(), dim, kEps, &expected[h * dim]);
    }
    expect_kernels([&](Recording& r) {
        const auto state = r.machine().upload(x);
        r.dispatch("head_norm_f32", HeadNormArgs{heads, dim, kEps}, heads, 1,
                   {reads(1, r.machine().upload(w)), updates(2, state)});
        r.expect(state, expected);
    });
}

TEST(Norm, PerHead) {
    std::mt19937 random(6);
    for (const uint32_t heads : {1u, 4u, 7u}) {
        for (const uint32_t dim : {32u, 48u, 128u, 256u}) expect_head_norm(heads, dim, random);
    }
}

TEST(Norm, SweepRandomShapes) {
    std::mt19937 random(7);
    const auto pick = [&](uint32_t from, uint32_t to) { return from + random() % (to - from + 1); };
    for (int i = 0; i < 150; ++i) {
        const Values kind = kAllValues[random() % std::size(kAllValues)];
        const uint32_t n = 256 * pick(1, 16);
        SCOPED_TRACE("case " + std::to_string(i) + ", " + std::to_string(n));
        expect_boundary(n, random() % 2 == 0, kind, random);
        expect_head_norm(pick(1, 20), pick(1, 256), random);
        const uint32_t ragged = pick(1, 5000);
        const auto x = random_floats(ragged, random, kind);
        const auto w = random_floats(ragged, random);
        const auto h = random_floats(ragged, random, kind);
        const auto added = normed(x, &w, kPostEps);
        std::vector<float> expected(ragged);
        contract::residual_add(h.data(), added.data(), ragged, expected.data());
        expect_kernels([&](Recording& r) {
            const auto in = r.machine().upload(x);
            const auto weight = r.machine().upload(w);
            const auto y = r.machine().blank(ragged * 4);
            const auto residual = r.machine().upload(h);
            r.dispatch("rms_norm_f32", NormArgs{ragged, 0, kEps}, 1, 1,
                       {reads(1, in), writes(2, y)});
            r.dispatch("rms_norm_add_f32", NormArgs{ragged, 0, kPostEps}, 1, 1,
                       {reads(1, in), reads(2, weight), updates(3, residual)});
            r.expect(y, normed(x, nullptr, kEps), "y");
            r.expect(residual, expected, "residual");
        });
        if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace muser::emulator_test
