// Instruction sets that the CPU device has kernels for, and which of them this processor runs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace muser::device::cpu {

enum class Isa : uint8_t {
    portable,    // the baseline of this build: x86-64-v2, or AArch64 without hand-written parts
    avx2,        // AVX2, FMA, F16C
    avx512vnni,  // AVX-512 F, BW, VL, DQ and VNNI
    avx512amx,   // avx512vnni and the 8-bit tile products of AMX
    neon,        // AArch64 with the dot product extension
};

std::string_view isa_name(Isa isa);

// What this processor and operating system support, best first; `portable` is always the last.
std::vector<Isa> isas();

// The named one, or the best for "". Throws ConfigError for a name that is unknown or not supported
// here; the facts say what there is.
Isa choose_isa(std::string_view name);

}  // namespace muser::device::cpu
