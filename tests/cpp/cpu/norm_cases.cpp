// Norm and pointwise kernels against the contract.
#include <gtest/gtest.h>

#include <algorithm>

#include "contract/norm.h"
#include "contract/pointwise.h"
#include "support.h"

namespace muser::cpu_test {
namespace {

using device::cpu::KernelImpl;

// A vector length: ragged or whole blocks, on both sides of the change to 1,024 partials.
struct Length {
    uint32_t n, blocks;
};
Length length(Random& random) {
    if (random.one_in(2)) {
        const uint32_t blocks = random.pick({1u, 2u, 3u, 4u, 5u, 8u, 13u, 26u});
        return {blocks * MUSER_BLOCK, random.one_in(4) ? 0 : blocks};
    }
    return {random.pick({1u, 7u, 31u, 32u, 33u, 500u, 1023u, 1024u, 1025u, 1500u, 3001u}), 0};
}

float eps(Random& random) { return random.pick({1e-5f, 1e-8f, 0.0f}); }

void expect_form(const Launch& launch, unsigned index, const Length& l, std::span<const float> x) {
    if (l.blocks != 0) {
        expect_block_form(launch, index, x);
    } else {
        const auto bytes = launch.result<std::byte>(index);
        EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(),
                                [](std::byte b) { return b == std::byte{0x5a}; }));
    }
}

void check_rms_norm(const KernelImpl& kernel, Random& random, Data data) {
    const Length l = length(random);
    const auto x = floats(random, l.n, data);
    const float e = eps(random);
    Launch launch(kernel, NormArgs{l.n, 0, e});
    launch.with(1, x).with(2, std::vector<float>(l.n)).run(random);
    std::vector<float> y(l.n);
    contract::rms_norm(x.data(), nullptr, l.n, e, y.data());
    expect_same(launch.result<float>(2), y, "y");
}

template <auto norm>
void check_rms_norm_mul(const KernelImpl& kernel, Random& random, Data data) {
    const Length l = length(random);
    const auto x = floats(random, l.n, data);
    const auto weight = floats(random, l.n, data);
    const float e = eps(random);
    Launch launch(kernel, NormArgs{l.n, l.blocks, e});
    launch.with(1, x).with(2, weight).with(3, std::vector<float>(l.n)).with(4, empty_form(l.n));
    launch.run(random);
    std::vector<float> y(l.n);
    norm(x.data(), weight.data(), l.n, e, y.data());
    expect_same(launch.result<float>(3), y, "y");
    expect_form(launch, 4, l, y);
}

void check_rms_norm_add(const KernelImpl& kernel, Random& random, Data data) {
    const Length l = length(random);
    const auto x = floats(random, l.n, data);
    const auto weight = floats(random, l.n, data);
    auto residual = floats(random, l.n, data);
    const float e = eps(random);
    Launch launch(kernel, NormArgs{l.n, 0, e});
    launch.with(1, x).with(2, weight).with(3, residual).run(random);
    std::vector<float> y(l.n);
    contract::rms_norm(x.data(), weight.data(), l.n, e, y.data());
    contract::residual_add(residual.data(), y.data(), l.n, residual.data());
    expect_same(launch.result<float>(3), residual, "residual");
}

template <auto norm>
void check_rms_norm_add_norm(const KernelImpl& kernel, Random& random, Data data) {
    const Length l = length(random);
    const auto x = floats(random, l.n, data);
    const auto post = floats(random, l.n, data);
    const auto weight = floats(random, l.n, data);
    auto residual = floats(random, l.n, data);
    const float post_eps = eps(random), next_eps = eps(random);
    Launch launch(kernel, DualNormArgs{l.n, l.blocks, post_eps, next_eps});
    launch.with(1, x).with(2, post).with(3, residual).with(4, weight);
    launch.with(5, std::vector<float>(l.n)).with(6, empty_form(l.n)).run(random);
    std::vector<float> y(l.n);
    norm(x.data(), post.data(), l.n, post_eps, y.data());
    contract::residual_add(residual.data(), y.data(), l.n, residual.data());
    norm(residual.data(), weight.data(), l.n, next_eps, y.data());
    expect_same(launch.result<float>(3), residual, "residual");
    expect_same(launch.result<float>(5), y, "y");
    expect_form(launch, 6, l, y);
}

void check_head_norm(const KernelImpl& kernel, Random& random, Data data) {
    const uint32_t heads = random.between(1, 33);
    const uint32_t dim = random.pick({16u, 20u, 31u, 64u, 80u, 128u, 256u});
    const auto weight = floats(random, dim, data);
    auto x = floats(random, heads * dim, data);
    const float e = eps(random);
    Launch launch(kernel, HeadNormArgs{heads, dim, e});
    launch.with(1, weight).with(2, x).run(random);
    for (uint32_t h = 0; h < heads; ++h) {
        contract::rms_norm(&x[h * dim], weight.data(), dim, e, &x[h * dim]);
    }
    expect_same(launch.result<float>(2), x, "x");
}

void check_gate(const KernelImpl& kernel, Random& random, Data data) {
    const Length l = length(random);
    const auto gate = floats(random, l.n, data);
    auto x = floats(random, l.n, data);
    Launch launch(kernel, VectorArgs{l.n, l.blocks});
    launch.with(1, gate).with(2, x).with(3, empty_form(l.n)).run(random);
    contract::sigmoid_gate(x.data(), gate.data(), l.n, x.data());
    expect_same(launch.result<float>(2), x, "attention");
    expect_form(launch, 3, l, x);
}

void check_silu(const KernelImpl& kernel, Random& random, Data data) {
    const Length l = length(random);
    const auto gate = floats(random, l.n, data);
    const auto up = floats(random, l.n, data);
    Launch launch(kernel, VectorArgs{l.n, l.blocks});
    launch.with(1, gate).with(2, up).with(3, std::vector<float>(l.n)).with(4, empty_form(l.n));
    launch.run(random);
    std::vector<float> y(l.n);
    contract::silu_mul(gate.data(), up.data(), l.n, y.data());
    expect_same(launch.result<float>(3), y, "y");
    expect_form(launch, 4, l, y);
}

void check_copy(const KernelImpl& kernel, Random& random, Data data) {
    const Length l = length(random);
    const auto x = floats(random, l.n, data);
    std::vector<std::byte> form(MUSER_BLOCK_FORM_BYTES(l.n));
    for (std::byte& b : form) b = static_cast<std::byte>(random.next());
    Launch launch(kernel, VectorArgs{l.n, l.blocks});
    launch.with(1, x).with(2, form).with(3, std::vector<float>(l.n)).with(4, empty_form(l.n));
    launch.run(random);
    EXPECT_EQ(std::memcmp(launch.result<float>(3).data(), x.data(), 4 * x.size()), 0);
    const auto copied = launch.result<std::byte>(4);
    const auto& expected = l.blocks != 0 ? form : empty_form(l.n);
    EXPECT_TRUE(std::equal(copied.begin(), copied.end(), expected.begin()));
}

}  // namespace

void add_norm_checks(Checks& checks) {
    checks["rms_norm_f32"] = check_rms_norm;
    checks["rms_norm_mul_b16"] = check_rms_norm_mul<contract::rms_norm>;
    checks["rms_norm_mul_4sg_b16"] = check_rms_norm_mul<contract::rms_norm_4sg>;
    checks["rms_norm_add_f32"] = check_rms_norm_add;
    checks["rms_norm_add_norm_b16"] = check_rms_norm_add_norm<contract::rms_norm>;
    checks["rms_norm_add_norm_4sg_b16"] = check_rms_norm_add_norm<contract::rms_norm_4sg>;
    checks["head_norm_f32"] = check_head_norm;
    checks["gate_b16"] = check_gate;
    checks["silu_mul_b16"] = check_silu;
    checks["copy_row_b16"] = check_copy;
}

}  // namespace muser::cpu_test
