// Random traces over few bytes: many conflicts, every kind of ordering, most of them unsound.
#pragma once

#include <cstdint>

#include "audit/trace.h"

namespace muser::audit {

// The same trace for the same seed, on every machine. It passes validate().
Trace random_trace(uint64_t seed);

}  // namespace muser::audit
