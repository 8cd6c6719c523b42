// Sizes of the interleaved layout.
#include "device/cuda/layout.h"

#include <gtest/gtest.h>

namespace muser::device::cuda {
namespace {

TEST(Layout, QuantisedMatricesAreInterleavedWithoutPadding) {
    struct Case {
        uint32_t type;
        uint64_t block_bytes;
    };
    for (const Case c : {Case{8, 272}, Case{12, 144}, Case{13, 176}, Case{14, 210}}) {
        const WeightLayout layout = weight_layout({c.type, 6656, 4096});
        EXPECT_EQ(layout.suffix, "_r32");
        EXPECT_EQ(layout.bytes, 6656u * 16 * c.block_bytes);
    }
}

TEST(Layout, TheLastGroupIsWhole) { EXPECT_EQ(weight_layout({12, 33, 256}).bytes, 64u * 144); }

TEST(Layout, FloatRowsStay) {
    EXPECT_EQ(weight_layout({0, 3, 100}).suffix, "");
    EXPECT_EQ(weight_layout({0, 3, 100}).bytes, 1200u);
    EXPECT_EQ(weight_layout({1, 3, 100}).bytes, 600u);
    EXPECT_EQ(weight_layout({30, 3, 100}).bytes, 600u);
}

TEST(Layout, AGroupsPiecesStartAt16Bytes) {
    for (const uint32_t type : {8u, 12u, 13u, 14u}) {
        EXPECT_EQ(r32_shape(type)->group_bytes() % 16, 0u);
    }
}

}  // namespace
}  // namespace muser::device::cuda
