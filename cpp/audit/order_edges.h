// How many edges a graph needs that orders a trace's dispatches as its encoders and barriers do.
#pragma once

#include <cstdint>

#include "audit/trace.h"

namespace muser::audit {

// The fewest edges between dispatches of one command buffer, summed over the command buffers: the
// transitive reduction of "an encoder ends between them, or the encoder is serial, or a barrier
// between them is broad or names an object of each". Hazard tracking adds nothing: a device that
// runs graphs knows encoders and barriers.
uint64_t order_edges(const Trace& trace);

}  // namespace muser::audit
