// The kernels compiled into this program, plain and traced, by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/emulator/lane_operations.h"

namespace muser::emulator {

inline constexpr uint32_t kMaxBuffers = 10;

// Where one lane stands in the grid.
struct LanePosition {
    uint3 group;
    uint32_t thread, lane, simd;
};

struct KernelEntry {
    const char* name;
    const char* file;
    uint32_t args_bytes;
    uint32_t buffers;   // bound from index 1
    uint32_t writable;  // bit i - 1: argument i is not a pointer to const
    // Threadgroup memory that it may declare; an Apple GPU's, unless it is a form for others.
    uint32_t memory_bytes = 32 * 1024;
    // Runs one lane; buffers[i - 1] is the address of argument i.
    void (*run)(const void* args, void* const* buffers, const LanePosition& at);
};

bool register_kernel(const KernelEntry* entry, bool traced);
// Null when there is no such kernel in that compilation.
const KernelEntry* find_kernel(std::string_view name, bool traced);
std::vector<const KernelEntry*> all_kernels(bool traced);

template <typename F>
struct KernelSignature;
template <typename... P>
struct KernelSignature<void (*)(P...)> {
    using Parameters = std::tuple<P...>;
    static constexpr size_t count = sizeof...(P);
};

template <auto kFunction, typename Args, uint32_t kBuffers>
KernelEntry kernel_entry(const char* name, const char* file) {
    using Parameters = typename KernelSignature<decltype(kFunction)>::Parameters;
    static_assert(KernelSignature<decltype(kFunction)>::count == kBuffers + 5,
                  "argument struct, buffers, then MUSER_THREAD");
    static_assert(kBuffers <= kMaxBuffers);
    static_assert(std::is_same_v<std::tuple_element_t<0, Parameters>, const Args&>);
    KernelEntry entry{};
    entry.name = name;
    entry.file = file;
    entry.args_bytes = sizeof(Args);
    entry.buffers = kBuffers;
    [&]<size_t... I>(std::index_sequence<I...>) {
        static_assert((std::is_pointer_v<std::tuple_element_t<I + 1, Parameters>> && ...));
        ((entry.writable |=
          std::is_const_v<std::remove_pointer_t<std::tuple_element_t<I + 1, Parameters>>>
              ? 0u
              : 1u << I),
         ...);
        entry.run = [](const void* args, void* const* buffers, const LanePosition& at) {
            kFunction(*static_cast<const Args*>(args),
                      static_cast<std::tuple_element_t<I + 1, Parameters>>(buffers[I])..., at.group,
                      at.thread, at.lane, at.simd);
        };
    }
    (std::make_index_sequence<kBuffers>{});
    return entry;
}

}  // namespace muser::emulator
