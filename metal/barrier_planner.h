// Barriers computed from the declared byte ranges: the fewest broad ones that order every conflict
// within one encoder. The auditor shares no code with this, and checks what comes of it.
#pragma once

#include <cstdint>
#include <vector>

#include "metal/graph_encoder.h"

namespace muser {

// The proof that an encoder needs no ordering but the barriers it names. Only the planner makes
// one; untracked buffers are encoded with nothing less.
class BarrierPlan {
  public:
    // Before which dispatches, counted over the command buffer, a broad barrier stands.
    bool barrier_before(uint32_t dispatch) const { return before_.at(dispatch); }
    uint32_t dispatches() const { return static_cast<uint32_t>(before_.size()); }
    uint32_t barriers() const { return barriers_; }

  private:
    friend BarrierPlan plan_barriers(const EncodeLog& log);
    BarrierPlan() = default;
    std::vector<bool> before_;
    uint32_t barriers_ = 0;
};

// From a recording of one encoder made without barriers. Ranges that depend on step values count
// with their bounds, so that the plan holds for every position of the recording's phase.
//
// Each conflict i < j asks for a barrier somewhere in (i, j]. Placing one only where a dispatch
// conflicts with something after the last barrier, and as late as that, stabs all of these
// intervals with the fewest points.
BarrierPlan plan_barriers(const EncodeLog& log);

}  // namespace muser
