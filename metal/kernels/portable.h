// What lets one kernel file compile as MSL, as C++ (the emulator) and as CUDA (NVRTC).
//
// A kernel file is MSL. Beyond the language it uses only these:
//   MUSER_THREADGROUP(T, name, n)  declares a threadgroup array; in kernel functions only, first
//   MUSER_THREAD                   the built-in ids, always the last parameters:
//                                  uint3 group, uint tid, uint lane, uint simd
//   MUSER_KERNEL(name, Args, n)    after a kernel: its argument struct and number of buffers
//   MUSER_WIDE_KERNEL(...)         the same for one that carries the attribute for 1,024 threads
//   dot4(w, x, acc)                acc + the four products of two vectors of int8 in a word
// simd_shuffle, simd_shuffle_xor (32-bit values), simd_max of uint, threadgroup_barrier with
// mem_flags, and vector types are those of MSL.
#pragma once

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
using namespace metal;

#ifndef MUSER_THREADGROUP
#define MUSER_THREADGROUP(T, name, n) threadgroup T name[n]
#endif
#define MUSER_THREAD                                                                        \
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]], \
        uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]
#define MUSER_KERNEL(name, Args, n)
#define MUSER_WIDE_KERNEL(name, Args, n)

inline int dot4(uint w, uint x, int acc) {
    const int4 p = int4(as_type<char4>(w)) * int4(as_type<char4>(x));
    return acc + (p.x + p.y) + (p.z + p.w);
}

#elif defined(__CUDACC__)
// NVRTC with -default-device. A kernel function becomes a device function in a namespace of its
// own; MUSER_KERNEL makes the entry point of its name, which takes the argument struct by value,
// then one device address per buffer.
#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;

#define kernel static __device__ __forceinline__
#define device
#define constant const
#define thread
#define threadgroup
#define MUSER_THREADGROUP(T, name, n) __shared__ T name[n]
#define MUSER_THREAD uint3 group, uint tid, uint lane, uint simd

enum class mem_flags : unsigned { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
static __device__ inline mem_flags operator|(mem_flags a, mem_flags b) {
    return static_cast<mem_flags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
static __device__ inline void threadgroup_barrier(mem_flags) { __syncthreads(); }

// Kernels shuffle with whole SIMD groups only.
template <typename T>
static __device__ inline T simd_shuffle_xor(T value, ushort mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <typename T>
static __device__ inline T simd_shuffle(T value, ushort source) {
    return __shfl_sync(0xffffffffu, value, source);
}
static __device__ inline uint simd_max(uint value) {
    for (int mask = 16; mask > 0; mask >>= 1) {
        value = max(value, __shfl_xor_sync(0xffffffffu, value, mask));
    }
    return value;
}

static __device__ inline int dot4(uint w, uint x, int acc) {
    return __dp4a(static_cast<int>(w), static_cast<int>(x), acc);
}

// An address that becomes whatever pointer the kernel's parameter is.
struct MuserAddress {
    void* address;
    template <typename T>
    __device__ operator T*() const {
        return static_cast<T*>(address);
    }
};
#define MUSER_IDS \
    make_uint3(blockIdx.x, blockIdx.y, blockIdx.z), threadIdx.x, threadIdx.x & 31u, threadIdx.x >> 5
#define MUSER_PARAMS_2 MuserAddress b1, MuserAddress b2
#define MUSER_PARAMS_3 MUSER_PARAMS_2, MuserAddress b3
#define MUSER_PARAMS_4 MUSER_PARAMS_3, MuserAddress b4
#define MUSER_PARAMS_5 MUSER_PARAMS_4, MuserAddress b5
#define MUSER_PARAMS_6 MUSER_PARAMS_5, MuserAddress b6
#define MUSER_PARAMS_7 MUSER_PARAMS_6, MuserAddress b7
#define MUSER_PARAMS_8 MUSER_PARAMS_7, MuserAddress b8
#define MUSER_PARAMS_9 MUSER_PARAMS_8, MuserAddress b9
#define MUSER_PARAMS_10 MUSER_PARAMS_9, MuserAddress b10
#define MUSER_NAMES_2 b1, b2
#define MUSER_NAMES_3 MUSER_NAMES_2, b3
#define MUSER_NAMES_4 MUSER_NAMES_3, b4
#define MUSER_NAMES_5 MUSER_NAMES_4, b5
#define MUSER_NAMES_6 MUSER_NAMES_5, b6
#define MUSER_NAMES_7 MUSER_NAMES_6, b7
#define MUSER_NAMES_8 MUSER_NAMES_7, b8
#define MUSER_NAMES_9 MUSER_NAMES_8, b9
#define MUSER_NAMES_10 MUSER_NAMES_9, b10
// A kernel may be started while the one in front of it still runs: it lets the next one start in
// turn, and touches memory only when what is in front is done.
static __device__ inline void muser_enter() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The kernel function and the entry point differ in their parameters: they are overloads, and the
// entry point alone has C linkage. The bound keeps a thread's registers within what a threadgroup
// of that size can have.
#define MUSER_ENTRY(name, Args, n, threads)               \
    extern "C" __global__ void __launch_bounds__(threads) \
        name(const Args muser_args, MUSER_PARAMS_##n) {   \
        muser_enter();                                    \
        name(muser_args, MUSER_NAMES_##n, MUSER_IDS);     \
    }
#define MUSER_KERNEL(name, Args, n) MUSER_ENTRY(name, Args, n, 256)
#define MUSER_WIDE_KERNEL(name, Args, n) MUSER_ENTRY(name, Args, n, 1024)

#else
#include "../../cpp/device/emulator/kernel_language.h"
#endif

#include "args.h"
#include "math.h"
#include "shape_constants.h"
