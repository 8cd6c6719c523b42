// The kernel tables by instruction set.
#pragma once

#include "device/cpu/isa.h"
#include "device/cpu/kernel.h"

namespace muser::device::cpu {

// Empty for an instruction set that this build has no kernels for.
KernelTable kernels(Isa isa);
KernelTable product_kernels(Isa isa);
// Plain reads (read_rate.h).
KernelTable probe_kernels(Isa isa);

}  // namespace muser::device::cpu
