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
            for (uint32_t matrices = 1; matrices <= 2; ++matrices) {
                for (uint32_t blocks = 1; blocks <= 120; ++blocks) {
                    const ProductPlan plan =
                        plan_product(blocks, shape.pieces, shape.pairs, matrices, 208, shared, 132);
                    ASSERT_GE(plan.warps, matrices);
                    ASSERT_LE(plan.warps, uint32_t{MUSER_R32_WARPS});
                    ASSERT_LE(plan.shared_bytes, shared);
                    ASSERT_EQ(plan.stage_bytes, shape.pieces * 1024);
                    ASSERT_GE(plan.span, plan.warps);
                    ASSERT_EQ(plan.span % plan.warps, 0u);
                    ASSERT_GE(plan.shared_bytes, plan.warps * plan.stage_bytes +
                                                     plan.span * matrices * shape.pairs * 256);
                }
            }
        }
    }
}

TEST(ProductPlan, SpreadsRoundsEvenly) {
    EXPECT_EQ(plan_product(26, 9, 2, 1, 208, 227 << 10, 132).warps, 13u);
    EXPECT_EQ(plan_product(16, 9, 2, 1, 208, 227 << 10, 132).warps, 8u);
    EXPECT_EQ(plan_product(78, 9, 2, 1, 208, 227 << 10, 132).warps, 13u);
}

}  // namespace
}  // namespace muser::device::cuda
