#include "device/cpu/tables.h"

#include <initializer_list>
#include <vector>

#include "device/cpu/kernel_groups.h"

namespace muser::device::cpu {
namespace {

using Group = KernelTable (*)();

std::vector<KernelImpl> joined(std::initializer_list<Group> groups) {
    std::vector<KernelImpl> all;
    for (Group group : groups) {
        for (const KernelImpl& kernel : group()) all.push_back(kernel);
    }
    return all;
}

}  // namespace

#define MUSER_JOINED_TABLE(ISA)                                                          \
    KernelTable kernels_##ISA() {                                                        \
        static const std::vector<KernelImpl> all =                                       \
            joined({ISA::norm_kernels, ISA::attention_kernels, ISA::cache_kernels,       \
                    ISA::embedding_kernels, ISA::pointwise_kernels, ISA::head_kernels}); \
        return {all.data(), all.size()};                                                 \
    }

MUSER_JOINED_TABLE(portable)
#if defined(__x86_64__)
MUSER_JOINED_TABLE(avx2)
MUSER_JOINED_TABLE(avx512vnni)
#elif defined(__aarch64__)
MUSER_JOINED_TABLE(neon)
#endif

KernelTable kernels(Isa isa) {
    switch (isa) {
        case Isa::portable:
            return kernels_portable();
#if defined(__x86_64__)
        case Isa::avx2:
            return kernels_avx2();
        case Isa::avx512amx:  // tiles are of use to products alone
        case Isa::avx512vnni:
            return kernels_avx512vnni();
#elif defined(__aarch64__)
        case Isa::neon:
            return kernels_neon();
#endif
        default:
            return {nullptr, 0};
    }
}

KernelTable product_kernels(Isa isa) {
    switch (isa) {
        case Isa::portable:
            return product_kernels_portable();
#if defined(__x86_64__)
        case Isa::avx2:
            return product_kernels_avx2();
        case Isa::avx512amx:
            return product_kernels_avx512amx();
        case Isa::avx512vnni:
            return product_kernels_avx512vnni();
#elif defined(__aarch64__)
        case Isa::neon:
            return product_kernels_neon();
#endif
        default:
            return {nullptr, 0};
    }
}

KernelTable probe_kernels(Isa isa) {
    switch (isa) {
        case Isa::portable:
            return portable::probe_kernels();
#if defined(__x86_64__)
        case Isa::avx2:
            return avx2::probe_kernels();
        case Isa::avx512amx:
        case Isa::avx512vnni:
            return avx512vnni::probe_kernels();
#elif defined(__aarch64__)
        case Isa::neon:
            return neon::probe_kernels();
#endif
        default:
            return {nullptr, 0};
    }
}

}  // namespace muser::device::cpu
