#include "device/cpu/isa.h"

#include <string>

#include "errors.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#endif

namespace muser::device::cpu {
namespace {

struct Named {
    Isa isa;
    std::string_view name;
};
// Best first.
constexpr Named kNames[] = {
    {Isa::avx512amx, "avx512amx"}, {Isa::avx512vnni, "avx512vnni"}, {Isa::avx2, "avx2"},
    {Isa::neon, "neon"},           {Isa::portable, "portable"},
};

#if defined(__x86_64__)

struct Registers {
    uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
    Registers r;
    // gcc's header declares it unsigned, clang's int.
    const auto last = static_cast<uint32_t>(__get_cpuid_max(0, nullptr));
    if (leaf <= last) __cpuid_count(leaf, subleaf, r.a, r.b, r.c, r.d);
    return r;
}

constexpr bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

// The processor's flags say what it can execute; XCR0 says which registers the operating system
// saves. Both must hold.
uint64_t saved_state() {
    constexpr uint32_t kOsxsave = 1u << 27;
    if (!has(cpuid(1, 0).c, kOsxsave)) return 0;
    uint32_t low = 0;
    uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t{high} << 32 | low;
}

// Linux keeps the tile registers from a process until it asks for them: their 8 KiB make every
// signal frame larger. Refused where some thread's alternate signal stack is too small for that.
bool tiles_granted() {
#if defined(__linux__)
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}

bool supported(Isa isa) {
    constexpr uint32_t kFma = 1u << 12, kF16c = 1u << 29, kAvx = 1u << 28;  // leaf 1, ecx
    constexpr uint32_t kAvx2 = 1u << 5;                                     // leaf 7, ebx
    constexpr uint32_t kF = 1u << 16, kDq = 1u << 17, kBw = 1u << 30, kVl = 1u << 31;  // ebx
    constexpr uint32_t kVnni = 1u << 11;                           // leaf 7, ecx
    constexpr uint32_t kTile = 1u << 24, kTileInt8 = 1u << 25;     // leaf 7, edx
    constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;  // XCR0
    if (isa == Isa::portable) return true;
    const Registers one = cpuid(1, 0);
    const Registers seven = cpuid(7, 0);
    const uint64_t state = saved_state();
    const bool avx2 =
        has(one.c, kFma | kF16c | kAvx) && has(seven.b, kAvx2) && (state & kYmm) == kYmm;
    if (isa == Isa::avx2) return avx2;
    const bool avx512 =
        avx2 && has(seven.b, kF | kDq | kBw | kVl) && has(seven.c, kVnni) && (state & kZmm) == kZmm;
    if (isa == Isa::avx512vnni) return avx512;
    return isa == Isa::avx512amx && avx512 && has(seven.d, kTile | kTileInt8) &&
           (state & kTiles) == kTiles && tiles_granted();
}

#elif defined(__aarch64__)

bool has_dot_product() {
#if defined(__linux__)
    constexpr unsigned long kAsimdDp = 1ul << 20;  // HWCAP_ASIMDDP
    return (getauxval(AT_HWCAP) & kAsimdDp) != 0;
#elif defined(__APPLE__)
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &value, &size, nullptr, 0) == 0 && value;
#else
    return false;
#endif
}

bool supported(Isa isa) { return isa == Isa::portable || (isa == Isa::neon && has_dot_product()); }

#else

bool supported(Isa isa) { return isa == Isa::portable; }

#endif

std::string list(const std::vector<Isa>& all) {
    std::string text;
    for (Isa isa : all) {
        if (!text.empty()) text += ", ";
        text += isa_name(isa);
    }
    return text;
}

}  // namespace

std::string_view isa_name(Isa isa) {
    for (const Named& named : kNames) {
        if (named.isa == isa) return named.name;
    }
    return "?";
}

std::vector<Isa> isas() {
    std::vector<Isa> found;
    for (const Named& named : kNames) {
        if (supported(named.isa)) found.push_back(named.isa);
    }
    return found;
}

Isa choose_isa(std::string_view name) {
    const std::vector<Isa> available = isas();
    if (name.empty()) return available.front();
    for (Isa isa : available) {
        if (isa_name(isa) == name) return isa;
    }
    bool known = false;
    for (const Named& named : kNames) known = known || named.name == name;
    const std::string text(name);
    throw ConfigError((known ? "this processor does not support the instruction set '" + text + "'"
                             : "there is no CPU instruction set '" + text + "'") +
                          "; it supports: " + list(available),
                      {{"setting", "isa"}, {"found", text}, {"expected", list(available)}});
}

}  // namespace muser::device::cpu
