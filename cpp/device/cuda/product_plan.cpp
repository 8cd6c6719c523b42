#include <algorithm>

#include "device/cuda/kernels.h"
#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {
namespace {

// Two blocks share a multiprocessor's 228 KiB, of which each takes 1 KiB for itself.
constexpr uint32_t kHalfOfShared = 113 * 1024;
constexpr uint32_t kActivationBytes = 576;  // R32Activations
constexpr uint32_t kPairBytes = 32 * 8;     // a pair for each lane
// Of the L2 cache, for weights asked for ahead.
constexpr uint64_t kAheadBytes = 24u << 20;

}  // namespace

ProductPlan plan_product(uint32_t blocks, uint32_t stage_pieces, uint32_t pairs, uint32_t matrices,
                         uint64_t groups, uint32_t shared_limit, uint32_t multiprocessors) {
    ProductPlan plan;
    plan.stage_bytes = 2 * 512 * stage_pieces;
    const uint32_t budget = std::min(kHalfOfShared, shared_limit);
    const uint32_t pair_bytes = matrices * pairs * kPairBytes;
    const auto warp_bytes = plan.stage_bytes + kActivationBytes;
    uint32_t warps = std::min<uint32_t>(MUSER_R32_WARPS, std::max(blocks, 1u));
    // Room for the pairs of at least two rounds, so that the warps do not meet after each.
    while (warps > 1 && warps * (warp_bytes + 2 * pair_bytes) > budget) --warps;
    // As few warps as need no more rounds.
    const uint32_t rounds = (blocks + warps - 1) / warps;
    warps = (blocks + rounds - 1) / rounds;
    plan.warps = std::max(warps, matrices);
    const uint32_t room = (budget - plan.warps * warp_bytes) / pair_bytes;
    const uint32_t spans = std::max(1u, std::min(rounds, room / plan.warps));
    plan.span = spans * plan.warps;
    plan.shared_bytes = plan.warps * warp_bytes + plan.span * pair_bytes;
    const uint64_t resident = std::min<uint64_t>(groups, uint64_t{2} * multiprocessors);
    const uint64_t each = resident * plan.warps * plan.stage_bytes / 2;
    plan.ahead = static_cast<uint32_t>(std::clamp<uint64_t>(kAheadBytes / each, 1, 31));
    return plan;
}

}  // namespace muser::device::cuda
