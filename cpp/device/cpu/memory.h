// Host memory for buffers.
#pragma once

#include <cstdint>
#include <memory>

namespace muser::device::cpu {

// Zeroed memory that starts on a page (64 bytes where it is smaller than one). Large blocks start
// on a huge page and ask for huge pages: a 17 GB weight matrix set would otherwise miss the TLB on
// each new page. Null when there is none to be had.
std::shared_ptr<void> allocate_memory(uint64_t bytes);

}  // namespace muser::device::cpu
