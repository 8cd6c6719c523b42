#include "device/emulator/memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

namespace muser::emulator {

namespace {

constexpr std::byte kGuard{0xa5};
constexpr std::align_val_t kAlignment{16384};  // a page on every machine with Metal

std::atomic<uint64_t> next_id{1};

std::byte* raw_allocate(uint64_t bytes) {
    return static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
}

}  // namespace

std::byte Allocation::poison(uint64_t offset) const {
    return static_cast<std::byte>((offset & 1) == 0 ? kPoison & 0xff : kPoison >> 8);
}

void Allocation::mark_written(uint64_t offset, uint64_t bytes) {
    if (written.empty()) return;
    for (uint64_t i = offset; i < offset + bytes;) {
        if ((i & 63) == 0 && i + 64 <= offset + bytes) {
            written[i / 64] = ~uint64_t{0};
            i += 64;
        } else {
            written[i / 64] |= uint64_t{1} << (i & 63);
            ++i;
        }
    }
}

bool Allocation::uninitialised(uint64_t offset) const {
    return !written.empty() && (written[offset / 64] >> (offset & 63) & 1) == 0 &&
           begin[offset] == poison(offset);
}

std::shared_ptr<stream::Buffer> Memory::allocate(uint64_t bytes, device::MemoryUse use) {
    const uint64_t length = std::max<uint64_t>(bytes, 1);
    // The guard before keeps the alignment of what follows.
    constexpr uint64_t kBefore = static_cast<uint64_t>(kAlignment);
    static_assert(kBefore >= kGuardBytes);
    std::byte* raw = raw_allocate(kBefore + length + kGuardBytes);
    if (raw == nullptr) return nullptr;
    std::shared_ptr<Allocation> allocation(new Allocation, [raw](Allocation* dying) {
        ::operator delete(raw, kAlignment);
        delete dying;
    });
    allocation->begin = raw + kBefore;
    allocation->length = bytes;
    allocation->guarded = true;
    repair_guard(*allocation);
    if (use == device::MemoryUse::device) {
        for (uint64_t i = 0; i < bytes; ++i) allocation->begin[i] = allocation->poison(i);
        allocation->written.assign((bytes + 63) / 64, 0);
    } else {
        std::memset(allocation->begin, 0, bytes);
    }
    return make_buffer(allocation);
}

std::shared_ptr<stream::Buffer> Memory::wrap(const void* bytes, uint64_t length) {
    auto allocation = std::make_shared<Allocation>();
    // Only reading kernels get it; the tracer reports a write.
    allocation->begin = static_cast<std::byte*>(const_cast<void*>(bytes));
    allocation->length = length;
    return make_buffer(allocation);
}

std::shared_ptr<stream::Buffer> Memory::make_buffer(const std::shared_ptr<Allocation>& allocation) {
    allocation->id = next_id.fetch_add(1);
    auto buffer = std::make_shared<stream::Buffer>();
    buffer->id = allocation->id;
    buffer->allocation = allocation->id;
    buffer->length = allocation->length;
    buffer->contents = allocation->begin;
    buffer->device_address = reinterpret_cast<uintptr_t>(allocation->begin);
    buffer->storage = allocation;
    const uint64_t guard = allocation->guarded ? kGuardBytes : 0;
    const std::lock_guard lock(mutex_);
    std::erase_if(live_, [](const Live& entry) { return entry.allocation.expired(); });
    const Live entry{allocation->begin - guard, allocation->begin + allocation->length + guard,
                     allocation};
    live_.insert(std::upper_bound(live_.begin(), live_.end(), entry,
                                  [](const Live& a, const Live& b) { return a.begin < b.begin; }),
                 entry);
    return buffer;
}

std::shared_ptr<Allocation> Memory::find(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    const std::lock_guard lock(mutex_);
    auto after = std::upper_bound(live_.begin(), live_.end(), at,
                                  [](const std::byte* a, const Live& b) { return a < b.begin; });
    // Wrapped memory may overlap: look back over the few that begin before.
    while (after != live_.begin()) {
        --after;
        if (at >= after->begin && at < after->end) {
            if (auto found = after->allocation.lock()) return found;
        }
    }
    return nullptr;
}

std::shared_ptr<Allocation> Memory::of(const stream::Buffer& buffer) const {
    return find(buffer.contents);
}

std::optional<int64_t> Memory::damaged_guard(const Allocation& allocation) {
    if (!allocation.guarded) return std::nullopt;
    const auto bytes = static_cast<int64_t>(kGuardBytes);
    const auto length = static_cast<int64_t>(allocation.length);
    for (int64_t i = 0; i < bytes; ++i) {
        if (allocation.begin[length + i] != kGuard) return length + i;
        if (allocation.begin[-1 - i] != kGuard) return -1 - i;
    }
    return std::nullopt;
}

void Memory::repair_guard(const Allocation& allocation) {
    std::memset(allocation.begin - kGuardBytes, static_cast<int>(kGuard), kGuardBytes);
    std::memset(allocation.begin + allocation.length, static_cast<int>(kGuard), kGuardBytes);
}

}  // namespace muser::emulator
