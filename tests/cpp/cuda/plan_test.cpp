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
            for (const uint64_t grid : {uint64_t{104}, uint64_t{624}}) {
                for (uint32_t blocks = 1; blocks <= 120; ++blocks) {
                    const ProductPlan plan =
                        plan_product(blocks, shape.pieces, shape.pairs, grid, shared, 132);
                    ASSERT_GE(plan.warps, 2u);
                    ASSERT_LE(plan.warps, uint32_t{MUSER_R32_WARPS});
                    ASSERT_LE(plan.shared_bytes, shared);
                    ASSERT_EQ(plan.stage_bytes, shape.pieces * 1024);
                    ASSERT_GE(plan.span, plan.warps);
                    ASSERT_EQ(plan.span % plan.warps, 0u);
                    ASSERT_EQ(plan.shared_bytes, plan.warps * (plan.stage_bytes + 576) +
                                                     plan.span * 2 * shape.pairs * 256);
                }
            }
        }
    }
}

TEST(ProductPlan, SpreadsRoundsEvenly) {
    EXPECT_EQ(plan_product(26, 9, 2, 624, 227 << 10, 132).warps, 9u);
    EXPECT_EQ(plan_product(16, 9, 2, 104, 227 << 10, 132).warps, 16u);
}

}  // namespace
}  // namespace muser::device::cuda
