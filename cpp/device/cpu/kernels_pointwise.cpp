// Gate, SwiGLU and the copy of the last row (docs/numerics.md §6). A unit is 256 elements, one
// block.
#include "device/cpu/kernel_groups.h"
#include "device/cpu/lanes_math.h"

namespace muser::device::cpu::MUSER_ISA {
namespace {

MUSER_INLINE uint64_t block_count(uint64_t n) { return (n + MUSER_BLOCK - 1) / MUSER_BLOCK; }

MUSER_INLINE uint64_t block_end(uint64_t block, uint64_t n) {
    return (block + 1) * MUSER_BLOCK < n ? (block + 1) * MUSER_BLOCK : n;
}

Work exp_work(const Call& call) { return {block_count(arguments<VectorArgs>(call).n), 150}; }

void gate(const Call& call, uint64_t begin, uint64_t end) {
    const VectorArgs a = arguments<VectorArgs>(call);
    const float* g = buffer<const float>(call, 1);
    float* x = buffer<float>(call, 2);
    for (uint64_t block = begin; block < end; ++block) {
        uint64_t i = block * MUSER_BLOCK;
        const uint64_t stop = block_end(block, a.n);
        MUSER_VECTORS(i, stop) store(x + i, load(x + i) * sigmoid(load(g + i)));
        for (; i < stop; ++i) x[i] = x[i] * sigmoid(g[i]);
        if (block < a.blocks) {
            quantise_block(x + block * MUSER_BLOCK, a.n, block, buffer<std::byte>(call, 3));
        }
    }
}

void silu(const Call& call, uint64_t begin, uint64_t end) {
    const VectorArgs a = arguments<VectorArgs>(call);
    const float* g = buffer<const float>(call, 1);
    const float* u = buffer<const float>(call, 2);
    float* y = buffer<float>(call, 3);
    for (uint64_t block = begin; block < end; ++block) {
        uint64_t i = block * MUSER_BLOCK;
        const uint64_t stop = block_end(block, a.n);
        MUSER_VECTORS(i, stop) store(y + i, silu_mul(load(g + i), load(u + i)));
        for (; i < stop; ++i) y[i] = silu_mul(g[i], u[i]);
        if (block < a.blocks) {
            quantise_block(y + block * MUSER_BLOCK, a.n, block, buffer<std::byte>(call, 4));
        }
    }
}

Work copy_work(const Call& call) { return {1, 50 + arguments<VectorArgs>(call).n / 4}; }

void copy_row(const Call& call, uint64_t, uint64_t) {
    const VectorArgs a = arguments<VectorArgs>(call);
    __builtin_memcpy(buffer<float>(call, 3), buffer<const float>(call, 1), a.n * sizeof(float));
    if (a.blocks != 0) {
        __builtin_memcpy(buffer<std::byte>(call, 4), buffer<const std::byte>(call, 2),
                         MUSER_BLOCK_FORM_BYTES(uint64_t{a.n}));
    }
}

constexpr KernelImpl kTable[] = {
    {"gate_b16", exp_work, gate},
    {"silu_mul_b16", exp_work, silu},
    {"copy_row_b16", copy_work, copy_row},
};

}  // namespace

KernelTable pointwise_kernels() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace muser::device::cpu::MUSER_ISA
