#include "device/cuda/product_plan.h"

#include <algorithm>

#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {
namespace {

constexpr uint32_t kReserved = 1024;  // of a multiprocessor's shared memory, for each block
constexpr uint32_t kActivationBytes = MUSER_R32_ACTIVATION_BYTES;
constexpr uint32_t kPairBytes = 32 * 8;  // a pair for each row of a group
constexpr uint32_t kWideBlocks = 16;     // for each multiprocessor, of two groups
constexpr uint32_t kLongRow = 39;        // superblocks, at least

uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// What each of so many blocks on one multiprocessor may have of its shared memory.
uint32_t part_of(uint32_t shared_limit, uint32_t blocks) {
    return (shared_limit + kReserved) / blocks / 128 * 128 - kReserved;
}

}  // namespace

ProductPlan plan_product(const ProductSize& size, const GpuSize& gpu) {
    // Two groups to a block where that leaves every multiprocessor several blocks. Of gate and up
    // blocks are small where all of them then run at once.
    const uint64_t all = uint64_t{size.groups} * size.columns;
    const bool two = size.silu || size.groups >= kWideBlocks * gpu.multiprocessors;
    const uint32_t groups = two ? 2 : 1;
    const uint32_t pair_bytes = groups * size.pairs * kPairBytes;
    const uint32_t warp_bytes =
        groups * size.group_bytes + (groups == 1 ? 2 : 1) * kActivationBytes;
    ProductPlan plan;
    uint32_t most = MUSER_R32_WARPS_TWO;
    uint32_t budget = part_of(gpu.shared_limit, 2);
    const uint32_t small_budget = part_of(gpu.shared_limit, MUSER_R32_SMALL_BLOCKS);
    if (size.silu) {
        plan.form = ProductForm::silu;
        plan.blocks = size.groups;
        if (all > 2 * gpu.multiprocessors && all <= MUSER_R32_SMALL_BLOCKS * gpu.multiprocessors &&
            3 * (warp_bytes + 2 * pair_bytes) <= small_budget) {
            plan.form = ProductForm::silu_small;
            most = MUSER_R32_WARPS_SMALL;
            budget = small_budget;
        }
    } else if (groups == 2) {
        plan.form = ProductForm::wide;
        plan.blocks = divide_up(size.groups, 2);
    } else {
        // Fewer warps have more registers: for short rows, and for long ones of which a warp may
        // have two superblocks on their way.
        const uint32_t two_stages = MUSER_R32_WARPS_DEEP * (warp_bytes + size.group_bytes);
        const bool few_warps = size.superblocks <= 2 * MUSER_R32_WARPS_DEEP ||
                               (size.superblocks >= kLongRow &&
                                two_stages + 2 * MUSER_R32_WARPS_DEEP * pair_bytes <= budget);
        plan.form = few_warps ? ProductForm::deep : ProductForm::rows;
        plan.blocks = size.groups;
        most = few_warps ? MUSER_R32_WARPS_DEEP : MUSER_R32_WARPS_ONE;
    }
    uint32_t warps = std::min(most, size.superblocks);
    // Room for the pairs of at least two rounds, so that the warps do not meet after each.
    while (warps > 1 && warps * (warp_bytes + 2 * pair_bytes) > budget) --warps;
    // As few warps as need no more rounds, and one for each chain.
    const uint32_t rounds = divide_up(size.superblocks, warps);
    plan.warps = std::max(divide_up(size.superblocks, rounds), groups);
    const uint32_t second = plan.warps * size.group_bytes;
    if (plan.form == ProductForm::deep && rounds > 1 &&
        plan.warps * (warp_bytes + 2 * pair_bytes) + second <= budget) {
        plan.stages = 2;
        budget -= second;
    }
    const uint32_t room = (budget - plan.warps * warp_bytes) / pair_bytes;
    const uint32_t spans = std::max(1u, std::min(rounds, room / plan.warps));
    plan.span = spans * plan.warps;
    plan.shared_bytes =
        plan.warps * warp_bytes + (plan.stages - 1) * second + plan.span * pair_bytes;
    return plan;
}

}  // namespace muser::device::cuda
