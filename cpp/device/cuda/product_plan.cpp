#include <algorithm>

#include "device/cuda/kernels.h"
#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {
namespace {

// Two blocks share a multiprocessor's 228 KiB, of which each takes 1 KiB for itself.
constexpr uint32_t kHalfOfShared = 113 * 1024;
constexpr uint32_t kActivationBytes = 576;  // R32Activations
constexpr uint32_t kPairBytes = 32 * 8;     // a pair for each lane
constexpr uint32_t kCarryBytes = 64 * 4;    // from one block of a cluster to the other

}  // namespace

ProductPlan plan_product(uint32_t blocks, uint32_t pieces, uint32_t pairs, uint32_t groups,
                         uint32_t shared_limit) {
    ProductPlan plan;
    plan.stage_bytes = groups * 512 * pieces;
    const uint32_t budget = std::min(kHalfOfShared, shared_limit);
    const uint32_t most = groups == 1 ? MUSER_R32_WARPS_ONE : MUSER_R32_WARPS_TWO;
    const uint32_t pair_bytes = groups * pairs * kPairBytes;
    const uint32_t warp_bytes = plan.stage_bytes + kActivationBytes;
    uint32_t warps = std::min(most, std::max(blocks, 1u));
    // Room for the pairs of at least two rounds, so that the warps do not meet after each.
    while (warps > 1 && warps * (warp_bytes + 2 * pair_bytes) > budget) --warps;
    // As few warps as need no more rounds, and one for each chain.
    const uint32_t rounds = (blocks + warps - 1) / warps;
    plan.warps = std::max((blocks + rounds - 1) / rounds, groups);
    const uint32_t room = (budget - plan.warps * warp_bytes) / pair_bytes;
    const uint32_t spans = std::max(1u, std::min(rounds, room / plan.warps));
    plan.span = spans * plan.warps;
    plan.shared_bytes = plan.warps * warp_bytes + plan.span * pair_bytes;
    return plan;
}

ProductPlan plan_split(uint32_t blocks, uint32_t pieces, uint32_t pairs, uint32_t shared_limit) {
    ProductPlan plan;
    plan.stage_bytes = 2 * 512 * pieces;
    plan.span = (blocks + 1) / 2;
    const uint32_t budget = std::min(kHalfOfShared, shared_limit);
    const uint32_t fixed = 2 * pairs * kPairBytes * plan.span + kCarryBytes;
    const uint32_t warp_bytes = plan.stage_bytes + kActivationBytes;
    constexpr uint32_t kFewestWarps = 4;
    if (blocks < 2 || fixed + kFewestWarps * warp_bytes > budget) return {0, 0, 0, 0};
    uint32_t warps = std::min({uint32_t{MUSER_R32_WARPS_TWO}, plan.span,
                               (budget - fixed) / warp_bytes});
    const uint32_t rounds = (plan.span + warps - 1) / warps;
    plan.warps = std::max((plan.span + rounds - 1) / rounds, 2u);
    plan.shared_bytes = plan.warps * warp_bytes + fixed;
    return plan;
}

}  // namespace muser::device::cuda
