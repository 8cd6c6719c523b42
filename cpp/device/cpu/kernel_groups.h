// The tables of one instruction set's translation units; tables.cpp joins them.
#pragma once

#include "device/cpu/kernel.h"

#define MUSER_KERNEL_GROUPS(ISA)        \
    namespace muser::device::cpu::ISA { \
    KernelTable norm_kernels();         \
    KernelTable attention_kernels();    \
    KernelTable cache_kernels();        \
    KernelTable embedding_kernels();    \
    KernelTable pointwise_kernels();    \
    KernelTable head_kernels();         \
    KernelTable probe_kernels();        \
    }

MUSER_KERNEL_GROUPS(portable)
#if defined(__x86_64__)
MUSER_KERNEL_GROUPS(avx2)
MUSER_KERNEL_GROUPS(avx512vnni)
#elif defined(__aarch64__)
MUSER_KERNEL_GROUPS(neon)
#endif
