// A device that fails on purpose: the test double behind every device error the engine must
// survive. It passes everything on to a real device but the one thing that it was told to break.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "device/device.h"

namespace muser::device {

// Command buffers and allocations are counted from 1; the engine's probe is command buffer 1, so
// the first step is 2. Switches (0 or absent: off):
//   device_error_at_dispatch  = k  a step fails at its dispatch k (from 1): page fault, code 3
//   device_error_in_wait      = n  command buffer n runs, then reports an internal error, code 1
//   device_error_in_buffer    = n  command buffer n reports a timeout, code 2; later ones run
//   device_out_of_memory      = n  command buffer n reports out of memory, code 8
//   device_hang               = n  command buffer n never completes
//   device_refuse_allocation  = n  the n-th allocation is refused
// Null when no switch is set: the device itself is then used.
std::unique_ptr<Device> make_fault_device(std::shared_ptr<Device> device,
                                          const std::map<std::string, int>& switches);

}  // namespace muser::device
