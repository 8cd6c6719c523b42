// The emulator's memory: allocations between guard zones, poisoned where nothing has been written
// yet, and known by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/command_stream.h"
#include "device/device.h"

namespace muser::emulator {

// Conspicuous, finite as f16 (-427.25) and as f32; never what an engine stores by chance.
inline constexpr uint16_t kPoison = 0xDEAD;

struct Allocation {
    uint64_t id = 0;
    std::byte* begin = nullptr;
    uint64_t length = 0;
    bool guarded = false;  // kGuardBytes on both sides are ours
    // One bit per byte: a kernel (or Device::write) has written it. Empty: all of it counts.
    std::vector<uint64_t> written;

    bool contains(const std::byte* at) const { return at >= begin && at < begin + length; }
    // The poison that a byte holds until somebody writes it.
    std::byte poison(uint64_t offset) const;
    void mark_written(uint64_t offset, uint64_t bytes);
    // True when the byte was never written: neither seen written nor, by a host that wrote through
    // `contents`, different from its poison.
    bool uninitialised(uint64_t offset) const;
};

class Memory {
  public:
    static constexpr uint64_t kGuardBytes = 4096;

    // Null when the machine has no such memory.
    std::shared_ptr<stream::Buffer> allocate(uint64_t bytes, device::MemoryUse use);
    std::shared_ptr<stream::Buffer> wrap(const void* bytes, uint64_t length);

    // The live allocation whose bytes, or whose guard zones, hold the address; null for none.
    std::shared_ptr<Allocation> find(const void* address) const;
    std::shared_ptr<Allocation> of(const stream::Buffer& buffer) const;
    // Offset of the first damaged guard byte, relative to the allocation's begin.
    static std::optional<int64_t> damaged_guard(const Allocation& allocation);
    static void repair_guard(const Allocation& allocation);

  private:
    std::shared_ptr<stream::Buffer> make_buffer(const std::shared_ptr<Allocation>& allocation);

    // By address; weak, since a buffer's storage owns its allocation.
    struct Live {
        const std::byte* begin;  // guard included
        const std::byte* end;
        std::weak_ptr<Allocation> allocation;
    };
    mutable std::mutex mutex_;
    mutable std::vector<Live> live_;
};

}  // namespace muser::emulator
