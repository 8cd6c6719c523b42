// How products use a GPU: whatever the shape, the plan fits, covers the rows, and spreads the work.
#include "device/cuda/product_plan.h"

#include <gtest/gtest.h>

#include "device/cuda/layout.h"
#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {
namespace {

constexpr GpuSize kH200{132, 227u << 10};
ProductSize size_of(uint32_t type, uint32_t groups, uint32_t superblocks, uint32_t columns = 1) {
    const R32Shape& shape = *r32_shape(type);
    return {groups, superblocks, columns, static_cast<uint32_t>(shape.group_bytes()), shape.pairs};
}

void check(const ProductSize& size, const GpuSize& gpu, const ProductPlan& plan) {
    const bool two = plan.form != ProductForm::rows && plan.form != ProductForm::deep;
    const uint32_t groups = two ? 2 : 1;
    ASSERT_EQ(plan.blocks, plan.form == ProductForm::wide ? (size.groups + 1) / 2 : size.groups);
    const bool small = plan.form == ProductForm::silu_small;
    constexpr uint32_t kMost[] = {MUSER_R32_WARPS_ONE, MUSER_R32_WARPS_DEEP, MUSER_R32_WARPS_TWO,
                                  MUSER_R32_WARPS_TWO, MUSER_R32_WARPS_SMALL};
    ASSERT_LE(plan.warps, kMost[static_cast<size_t>(plan.form)]);
    ASSERT_GE(plan.warps, groups);
    ASSERT_GE(plan.span, plan.warps);
    ASSERT_EQ(plan.span % plan.warps, 0u);
    ASSERT_LE(plan.stages, plan.form == ProductForm::deep ? 2u : 1u);
    ASSERT_EQ(plan.shared_bytes, plan.warps * (groups * plan.stages * size.group_bytes +
                                               (two ? 1 : 2) * MUSER_R32_ACTIVATION_BYTES) +
                                     plan.span * groups * size.pairs * 256);
    const uint32_t together = small ? MUSER_R32_SMALL_BLOCKS : 2;
    ASSERT_LE(together * (plan.shared_bytes + 1024), gpu.shared_limit + 1024);
}

TEST(ProductPlan, FitsEveryShape) {
    uint32_t seen[5] = {};
    for (const GpuSize gpu : {GpuSize{82, 99u << 10}, GpuSize{108, 163u << 10}, kH200}) {
        for (const uint32_t type : {8u, 12u, 13u, 14u}) {
            for (const uint32_t groups : {1u, 2u, 7u, 66u, 104u, 208u, 272u, 624u, 6314u}) {
                for (const uint32_t columns : {1u, 5u}) {
                    for (const bool silu : {false, true}) {
                        for (uint32_t superblocks = 1; superblocks <= 120; ++superblocks) {
                            ProductSize size = size_of(type, groups, superblocks, columns);
                            size.silu = silu;
                            const ProductPlan plan = plan_product(size, gpu);
                            ++seen[static_cast<size_t>(plan.form)];
                            ASSERT_EQ(silu, plan.form == ProductForm::silu ||
                                                plan.form == ProductForm::silu_small);
                            check(size, gpu, plan);
                            if (HasFatalFailure()) {
                                FAIL() << "type " << type << " groups " << groups << " superblocks "
                                       << superblocks << " columns " << columns << " shared "
                                       << gpu.shared_limit;
                            }
                        }
                    }
                }
            }
        }
    }
    for (const uint32_t count : seen) EXPECT_GT(count, 0u);
}

TEST(ProductPlan, NeedsFewRounds) {
    EXPECT_EQ(plan_product(size_of(12, 272, 26), kH200).warps, 13u);
    EXPECT_EQ(plan_product(size_of(12, 208, 16), kH200).warps, 8u);
    EXPECT_EQ(plan_product(size_of(12, 208, 78), kH200).warps, 10u);
    EXPECT_EQ(plan_product(size_of(14, 208, 78), kH200).warps, 13u);
}

TEST(ProductPlan, HasTwoSuperblocksOnTheirWayWhereTheyFit) {
    EXPECT_EQ(plan_product(size_of(12, 208, 78), kH200).stages, 2u);
    EXPECT_EQ(plan_product(size_of(14, 208, 78), kH200).stages, 1u);
    EXPECT_EQ(plan_product(size_of(12, 208, 16), kH200).stages, 2u);
    EXPECT_EQ(plan_product(size_of(12, 144, 26), kH200).stages, 1u);  // too many warps for it
}

TEST(ProductPlan, RunsAllBlocksOfGateAndUpAtOnce) {
    ProductSize size = size_of(12, 624, 26);
    size.silu = true;
    const ProductPlan plan = plan_product(size, kH200);
    EXPECT_EQ(plan.form, ProductForm::silu_small);
    EXPECT_LE(plan.blocks, MUSER_R32_SMALL_BLOCKS * kH200.multiprocessors);
    size.columns = 4;
    EXPECT_EQ(plan_product(size, kH200).form, ProductForm::silu);
}

TEST(ProductPlan, GivesTheHeadsBlocksTwoGroups) {
    EXPECT_EQ(plan_product(size_of(14, 6314, 26), kH200).form, ProductForm::wide);
}

}  // namespace
}  // namespace muser::device::cuda
