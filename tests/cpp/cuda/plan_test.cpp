// How products use a multiprocessor: whatever the shape, the plan fits and covers the row.
#include <gtest/gtest.h>

#include "device/cuda/kernels.h"
#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {
namespace {

TEST(ProductPlan, FitsEveryShape) {
    for (const uint32_t shared : {99u << 10, 163u << 10, 227u << 10}) {
        for (const uint32_t type : {8u, 12u, 13u, 14u}) {
            const R32Shape& shape = *r32_shape(type);
            for (const uint32_t groups : {1u, 2u}) {
                for (uint32_t blocks = 1; blocks <= 120; ++blocks) {
                    const ProductPlan plan =
                        plan_product(blocks, shape.pieces, shape.pairs, groups, shared);
                    ASSERT_GE(plan.warps, groups);
                    const int most = groups == 1 ? MUSER_R32_WARPS_ONE : MUSER_R32_WARPS_TWO;
                    ASSERT_LE(plan.warps, static_cast<uint32_t>(most));
                    ASSERT_LE(plan.shared_bytes, shared);
                    ASSERT_EQ(plan.stage_bytes, groups * shape.pieces * 512);
                    ASSERT_GE(plan.span, plan.warps);
                    ASSERT_EQ(plan.span % plan.warps, 0u);
                    ASSERT_EQ(plan.shared_bytes, plan.warps * (plan.stage_bytes + 576) +
                                                     plan.span * groups * shape.pairs * 256);
                }
            }
        }
    }
}

TEST(ProductPlan, SpreadsRoundsEvenly) {
    EXPECT_EQ(plan_product(26, 9, 2, 2, 227 << 10).warps, 9u);
    EXPECT_EQ(plan_product(16, 9, 2, 1, 227 << 10).warps, 8u);
}

}  // namespace
}  // namespace muser::device::cuda
