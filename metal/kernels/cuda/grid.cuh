// What CUDA has and the portable language does not: starting before the kernel in front is done,
// copies past the registers, prefetches.
#pragma once

#include "../portable.h"
#include "launch_args.h"

// Lets the next kernel of the stream start its blocks; they wait by themselves where they must.
static __device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Until the kernels in front are done and what they wrote can be seen. Before this only what no
// kernel writes (weights) may be touched.
static __device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Until a word that other blocks add to, at this address, is as large; then what they wrote can be
// seen.
static __device__ __forceinline__ void wait_until(uint64_t address, uint value) {
    uint found;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(address) : "memory");
    } while (found < value);
}

// Adds to such a word; whoever sees it also sees what this thread, or others of its block before a
// barrier, wrote before.
static __device__ __forceinline__ void add_and_tell(uint64_t address, uint value) {
    asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(address),
                 "r"(value)
                 : "memory");
}

static __device__ __forceinline__ void copy_16_async(void* to_shared, const void* from) {
    const uint to = static_cast<uint>(__cvta_generic_to_shared(to_shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
static __device__ __forceinline__ void copy_4_async(void* to_shared, const void* from) {
    const uint to = static_cast<uint>(__cvta_generic_to_shared(to_shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// Sixteen bytes of what is read once: it leaves the L2 before what others will read again.
static __device__ __forceinline__ void copy_16_async_once(void* to_shared, const void* from,
                                                          uint64_t policy) {
    const uint to = static_cast<uint>(__cvta_generic_to_shared(to_shared));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "l"(policy)
                 : "memory");
}
// For weights: with several columns they are read again.
static __device__ __forceinline__ uint64_t weights_policy() {
    uint64_t policy;
    if (gridDim.y == 1) {
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    } else {
        asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    }
    return policy;
}
// `bytes`, a multiple of 16, on their way to the L2.
static __device__ __forceinline__ void prefetch_run(const void* from, uint bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}
static __device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// At most this many of the groups asked for last are still on their way.
template <uint kGroups>
static __device__ __forceinline__ void wait_for_all_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}
static __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}
