// The functions that -fsanitize=thread calls at each load and store of the traced kernels. They are
// ours, not the sanitizer's runtime: they tell the tracer and do nothing else. A build that links
// the real runtime cannot have the traced kernels (CMakeLists.txt).
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/emulator/tracer.h"

namespace {

// `alignment` is what the access's type promises; 1 where it promises nothing (packed types,
// ranges).
inline void seen(const volatile void* address, size_t bytes, bool write, const void* site,
                 size_t alignment = 1) {
    if (muser::emulator::Tracer* tracer = muser::emulator::Tracer::current()) {
        tracer->access(const_cast<const void*>(address), bytes, alignment, write, site);
    }
}

}  // namespace

// One byte before the return address lies in the call itself.
#define MUSER_SITE (static_cast<const char*>(__builtin_return_address(0)) - 1)

#define MUSER_HOOKS(bytes)                                                                       \
    void __tsan_read##bytes(void* at) { seen(at, bytes, false, MUSER_SITE, bytes); }             \
    void __tsan_write##bytes(void* at) { seen(at, bytes, true, MUSER_SITE, bytes); }             \
    void __tsan_unaligned_read##bytes(void* at) { seen(at, bytes, false, MUSER_SITE); }          \
    void __tsan_unaligned_write##bytes(void* at) { seen(at, bytes, true, MUSER_SITE); }          \
    void __tsan_volatile_read##bytes(void* at) { seen(at, bytes, false, MUSER_SITE, bytes); }    \
    void __tsan_volatile_write##bytes(void* at) { seen(at, bytes, true, MUSER_SITE, bytes); }    \
    void __tsan_unaligned_volatile_read##bytes(void* at) { seen(at, bytes, false, MUSER_SITE); } \
    void __tsan_unaligned_volatile_write##bytes(void* at) { seen(at, bytes, true, MUSER_SITE); } \
    void __tsan_read_write##bytes(void* at) {                                                    \
        seen(at, bytes, false, MUSER_SITE, bytes);                                               \
        seen(at, bytes, true, MUSER_SITE, bytes);                                                \
    }                                                                                            \
    void __tsan_unaligned_read_write##bytes(void* at) {                                          \
        seen(at, bytes, false, MUSER_SITE);                                                      \
        seen(at, bytes, true, MUSER_SITE);                                                       \
    }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

MUSER_HOOKS(1)
MUSER_HOOKS(2)
MUSER_HOOKS(4)
MUSER_HOOKS(8)
MUSER_HOOKS(16)

void __tsan_read_range(void* at, size_t bytes) { seen(at, bytes, false, MUSER_SITE); }
void __tsan_write_range(void* at, size_t bytes) { seen(at, bytes, true, MUSER_SITE); }

// A virtual table pointer is a pointer like others.
void __tsan_vptr_read(void** at) { seen(at, sizeof *at, false, MUSER_SITE); }
void __tsan_vptr_update(void** at, void*) { seen(at, sizeof *at, true, MUSER_SITE); }

void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
    seen(from, bytes, false, MUSER_SITE);
    seen(to, bytes, true, MUSER_SITE);
    return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
    seen(from, bytes, false, MUSER_SITE);
    seen(to, bytes, true, MUSER_SITE);
    return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
    seen(to, bytes, true, MUSER_SITE);
    return std::memset(to, value, bytes);
}
}
