#include "device/cpu/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace muser::device::cpu {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = 2u << 20;
constexpr uint64_t kLargest = uint64_t{1} << 47;

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Reserves a huge page more than asked and returns what lies outside the aligned middle.
std::shared_ptr<void> map_huge(uint64_t bytes) {
    const uint64_t length = round_up(bytes, kHugePage);
    void* start = mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    const uint64_t address = reinterpret_cast<uint64_t>(start);
    const uint64_t aligned = round_up(address, kHugePage);
    const uint64_t before = aligned - address;
    const uint64_t after = kHugePage - before;
    void* middle = reinterpret_cast<void*>(aligned);
    if (before != 0) munmap(start, before);
    if (after != 0) munmap(reinterpret_cast<void*>(aligned + length), after);
#if defined(MADV_HUGEPAGE)
    madvise(middle, length, MADV_HUGEPAGE);
#endif
    return {middle, [length](void* p) { munmap(p, length); }};
}

}  // namespace

std::shared_ptr<void> allocate_memory(uint64_t bytes) {
    if (bytes > kLargest) return nullptr;
    try {
        if (bytes >= 2 * kHugePage) return map_huge(bytes);
        const uint64_t alignment = bytes >= kPage ? kPage : 64;
        const uint64_t length = round_up(bytes == 0 ? 1 : bytes, alignment);
        void* p = std::aligned_alloc(alignment, length);
        if (p == nullptr) return nullptr;
        std::memset(p, 0, length);
        return {p, [](void* q) { std::free(q); }};
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

}  // namespace muser::device::cpu
