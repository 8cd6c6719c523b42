// One kernel on a pool, waited for: work that is no command buffer.
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/pool.h"

namespace muser::device::cpu {

// Returns the seconds from the job's turn to its end.
double run_kernel(Pool& pool, const KernelImpl& kernel, const Call& call);

}  // namespace muser::device::cpu
