// Every kernel of every instruction set that this machine has, against the contract, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>

#include "contract/pointwise.h"
#include "device/cpu/isa.h"
#include "device/cpu/tables.h"
#include "metal/kernels/launch_shapes.h"
#include "support.h"

namespace muser::cpu_test {
namespace {

using device::cpu::Isa;
using device::cpu::KernelImpl;

const Checks& all_checks() {
    static const Checks checks = [] {
        Checks all;
        add_norm_checks(all);
        add_attention_checks(all);
        add_cache_checks(all);
        add_head_checks(all);
        return all;
    }();
    return checks;
}

// The catalogue without the mat-vec products.
std::set<std::string> catalogue() {
    std::set<std::string> names;
    for (const kernels::KernelShape& shape : kernels::kKernelShapes) {
        if (!shape.name.starts_with("mul_mv_")) names.emplace(shape.name);
    }
    return names;
}

TEST(Kernels, EachTableIsTheCatalogueAndEachKernelHasACheck) {
    std::set<std::string> checked;
    for (const auto& [name, check] : all_checks()) checked.insert(name);
    EXPECT_EQ(checked, catalogue());
    for (Isa isa : device::cpu::isas()) {
        std::set<std::string> names;
        for (const KernelImpl& kernel : device::cpu::kernels(isa)) {
            EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " is there twice";
        }
        EXPECT_EQ(names, catalogue()) << device::cpu::isa_name(isa);
    }
}

class KernelCheck : public testing::TestWithParam<Isa> {
  protected:
    void check_all(uint64_t first_seed, uint64_t seeds) {
        for (const KernelImpl& kernel : device::cpu::kernels(GetParam())) {
            for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
                for (Data data : {Data::plain, Data::wide, Data::damaged}) {
                    SCOPED_TRACE(std::string(kernel.name) + ", seed " + std::to_string(seed) +
                                 ", data " + std::to_string(static_cast<int>(data)));
                    Random random(seed * 3 + static_cast<uint64_t>(data));
                    all_checks().at(kernel.name)(kernel, random, data);
                    if (HasFailure()) return;
                }
            }
        }
    }
};

TEST_P(KernelCheck, EqualsTheContract) { check_all(1, 12); }
TEST_P(KernelCheck, SweepEqualsTheContract) { check_all(1000, 300); }

// exp and tanh repeat the coefficients of metal/kernels/math.h: a dense walk over all f32 patterns.
TEST_P(KernelCheck, ExpAndTanhEqualTheContractsAllOverTheRange) {
    std::vector<float> x;
    for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 9973) {
        x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    }
    const uint32_t n = static_cast<uint32_t>(x.size());
    Random random(1);
    for (const KernelImpl& kernel : device::cpu::kernels(GetParam())) {
        if (std::string_view(kernel.name) == "gate_b16") {
            Launch launch(kernel, VectorArgs{n, 0});
            std::vector<float> y(n, 1.0f);
            launch.with(1, x).with(2, y).run(random);
            contract::sigmoid_gate(y.data(), x.data(), n, y.data());
            expect_same(launch.result<float>(2), y, "sigmoid");
        } else if (std::string_view(kernel.name) == "softcap_f32") {
            Launch launch(kernel, SoftcapArgs{n, 1.0f, 1.0f});
            std::vector<float> y = x;
            launch.with(1, x).with(2, std::vector<uint32_t>(n / 1024 + 1)).run(random);
            contract::softcap(y.data(), n, 1.0f, 1.0f);
            expect_same(launch.result<float>(1), y, "tanh");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, KernelCheck, testing::ValuesIn(device::cpu::isas()),
                         [](const auto& param_info) {
                             return std::string(device::cpu::isa_name(param_info.param));
                         });

}  // namespace
}  // namespace muser::cpu_test
