// A kernel as the CPU device runs it: work cut into units that any thread may take, in any order.
//
// Each instruction set has its own translation units, compiled with its own flags, and exports
// tables of KernelImpl. Rules for those units:
//  - Only this header, args.h, lanes.h, the contract's header-only parts (static functions) and
//    intrinsics are included, and everything but the table functions has internal linkage: an
//    inline function that the linker shares between objects could carry AVX code into the baseline.
//    A test reads the objects and fails on any other symbol.
//  - Threads that run kernels have subnormals flushed (contract/ftz.h); kernels never set a mode.
//  - No allocation, no exceptions, no libm. Scratch is on the stack, at most 256 KiB.
//  - What a unit computes never depends on how units are grouped into ranges: bits are the same for
//    every number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muser::device::cpu {

// One dispatch: its argument struct (any alignment) and its buffers by argument index, each already
// at its binding's offset. buffers[0] is null; so is an index that was not bound.
struct Call {
    const void* args;
    std::byte* const* buffers;
};

// How much there is to do. The time is a rough figure for one unit on one core. It decides how many
// units make a task and whether other threads are called in at all, never a result.
struct Work {
    uint64_t units;
    uint64_t unit_ns;
    uint64_t together = 1;  // units that are fastest in one call: tasks are multiples of as many
};

struct KernelImpl {
    const char* name;  // as in args.h, layout suffix included
    // Reads the arguments and the step values only; called once, before any unit runs.
    Work (*work)(const Call&);
    // Units [begin, end) of work().units.
    void (*run)(const Call&, uint64_t begin, uint64_t end);
};

struct KernelTable {
    const KernelImpl* first;
    size_t count;
    const KernelImpl* begin() const { return first; }
    const KernelImpl* end() const { return first + count; }
};

// Everything but the products. Complete: each table holds every such kernel of args.h.
KernelTable kernels_portable();
// The mat-vec products (cpp/device/cpu/products/), likewise complete, for every layout that
// product_layout() of this instruction set can return and for ggml's own rows (suffix "").
KernelTable product_kernels_portable();
#if defined(__x86_64__)
KernelTable kernels_avx2();
KernelTable kernels_avx512vnni();
KernelTable product_kernels_avx2();
KernelTable product_kernels_avx512vnni();
KernelTable product_kernels_avx512amx();
#elif defined(__aarch64__)
KernelTable kernels_neon();
KernelTable product_kernels_neon();
#endif

// The argument struct of a call; a copy, since the recorded bytes may have any alignment.
template <class T>
static inline T arguments(const Call& call) {
    T args;
    __builtin_memcpy(&args, call.args, sizeof args);
    return args;
}

// Argument `index` as an array of T.
template <class T>
static inline T* buffer(const Call& call, unsigned index) {
    return reinterpret_cast<T*>(call.buffers[index]);
}

}  // namespace muser::device::cpu
