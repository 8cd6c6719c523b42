#include <algorithm>

#include "device/cuda/kernels.h"
#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {
namespace {

// Two blocks share a multiprocessor's 228 KiB, of which each takes 1 KiB for itself.
constexpr uint32_t kHalfOfShared = 113 * 1024;
constexpr uint32_t kActivationBytes = 576;  // R32Activations
constexpr uint32_t kPairBytes = 32 * 8;     // a pair for each lane

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

}  // namespace muser::device::cuda
