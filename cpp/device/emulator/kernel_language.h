// MSL for a C++ compiler: the part of the language that the kernel files use, for the emulator.
// Included by portable.h only, in a translation unit that holds one kernel file; it defines macros
// (device, constant, kernel, ...) that no other header could live with, so it comes last.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "device/emulator/kernel_registry.h"
#include "device/emulator/lane_operations.h"

#ifndef MUSER_HOST_COMPILER
#define MUSER_HOST_COMPILER
#endif
#include "../../../metal/kernels/args.h"
#include "../../../metal/kernels/math.h"

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using muser::emulator::float4;
using muser::emulator::uint2;
using muser::emulator::uint3;
using muser::emulator::uint4;

enum class mem_flags : unsigned { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
[[maybe_unused]] static constexpr mem_flags operator|(mem_flags a, mem_flags b) {
    return static_cast<mem_flags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

// The runtime notes where a lane stands by the return address, so these must be inlined into the
// kernel. NOLINT-free: always_inline is honoured by both compilers at every level.
#define MUSER_INLINE [[maybe_unused, gnu::always_inline]] static inline
MUSER_INLINE void threadgroup_barrier(mem_flags flags) {
    muser::emulator::lane_barrier(static_cast<unsigned>(flags));
}
template <typename T>
MUSER_INLINE T simd_shuffle(T value, ushort source) {
    static_assert(sizeof(T) == 4, "shuffles move 32-bit values only");
    return std::bit_cast<T>(
        muser::emulator::lane_shuffle(std::bit_cast<uint32_t>(value), source, false));
}
template <typename T>
MUSER_INLINE T simd_shuffle_xor(T value, ushort mask) {
    static_assert(sizeof(T) == 4, "shuffles move 32-bit values only");
    return std::bit_cast<T>(
        muser::emulator::lane_shuffle(std::bit_cast<uint32_t>(value), mask, true));
}
MUSER_INLINE uint simd_max(uint value) { return muser::emulator::lane_max(value); }

template <typename T>
MUSER_INLINE T min(T a, T b) {
    return b < a ? b : a;
}
template <typename T>
MUSER_INLINE T max(T a, T b) {
    return a < b ? b : a;
}

MUSER_INLINE int dot4(uint w, uint x, int acc) {
    for (int i = 0; i < 32; i += 8) {
        acc += static_cast<int8_t>(w >> i) * static_cast<int8_t>(x >> i);
    }
    return acc;
}

#define MUSER_THREADGROUP(T, name, n) \
    T* const name = static_cast<T*>(  \
        muser::emulator::lane_threadgroup_array(sizeof(T) * (n), alignof(T), #name))
#define MUSER_THREAD                                                                     \
    [[maybe_unused]] uint3 group, [[maybe_unused]] uint tid, [[maybe_unused]] uint lane, \
        [[maybe_unused]] uint simd

// Which of the two compilations of the kernel files this is.
#ifndef MUSER_TRACED
#define MUSER_TRACED false
#endif
#if MUSER_TRACED && defined(__clang__) && __clang_major__ < 15 && defined(__ELF__)
// Older clangs copy and clear structs by plain calls, which the sanitizer's own runtime would
// catch.
asm(".set memcpy, __tsan_memcpy\n.set memmove, __tsan_memmove\n.set memset, __tsan_memset");
#endif
#define MUSER_KERNEL(name, Args, n)                                     \
    static const muser::emulator::KernelEntry muser_entry_##name =      \
        muser::emulator::kernel_entry<&name, Args, n>(#name, __FILE__); \
    [[maybe_unused]] static const bool muser_registered_##name =        \
        muser::emulator::register_kernel(&muser_entry_##name, MUSER_TRACED);

#define MUSER_WIDE_KERNEL(name, Args, n) MUSER_KERNEL(name, Args, n)

#define kernel [[maybe_unused]] static
#define device
#define constant const
#define thread
#define threadgroup
