// What the read kernels (kernels_probe.cpp) are told.
#pragma once

#include <cstdint>

namespace muser::device::cpu {

// Buffer 1 holds `units` times `unit_bytes` bytes; buffer 2 takes a sum for each unit.
struct ReadArgs {
    uint64_t units;
    uint64_t unit_bytes;
};

}  // namespace muser::device::cpu
