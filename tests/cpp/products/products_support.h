// Random matrices and activations, and one way to run a product kernel on them: split into random
// ranges of units, between guard words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "contract/blocks.h"
#include "contract/quantise.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernel.h"
#include "metal/kernels/args.h"

namespace muser::products_test {

using contract::WeightType;
using device::cpu::Isa;
using device::cpu::KernelImpl;
using device::cpu::KernelTable;
using Random = std::mt19937_64;

// The product kernels of an instruction set.
KernelTable product_kernels(Isa isa);

// A kernel's name, taken apart: "mul_mv_silu_q4_K_b16_r16" is {silu, Q4_K, "_r16"}.
struct KernelName {
    bool silu;
    WeightType type;
    std::string layout;
};
// Fails the test for a name that is none of args.h's products.
KernelName parse_name(std::string_view name);

enum class Weights {
    random,   // any bits for quants and scales, moderate f16 factors of both signs, some zero
    extreme,  // each superblock's quants, scales and mins all at one end or the other
    infinite  // as random, some factors infinite or NaN
};
// ggml rows of a quantised matrix, or a float one.
std::vector<std::byte> random_weights(WeightType type, size_t rows, size_t cols, Weights kind,
                                      Random& random);

enum class Activations {
    random,   // quantised normal deviates
    extreme,  // every q one of +-32639, +-32384 (low plane -128), -32512
    damaged   // as random, some blocks zero, some with a NaN
};
// Columns of block forms: columns * cols / 256 blocks.
std::vector<contract::BlockForm> random_block_forms(size_t cols, size_t columns, Activations kind,
                                                    Random& random);
// Columns of f32 vectors.
std::vector<float> random_vectors(size_t cols, size_t columns, Random& random);

// Block forms as args.h lays them out in a buffer, column after column.
std::vector<std::byte> pack(const std::vector<contract::BlockForm>& forms, size_t cols);

// The matrix in `layout`, repacked in ranges; 64-byte aligned inside the vector at `offset`.
struct Repacked {
    std::vector<std::byte> memory;
    size_t offset = 0;
    std::byte* data() { return memory.data() + offset; }
};
Repacked repack(Isa isa, const std::string& layout, WeightType type, size_t rows, size_t cols,
                const std::vector<std::byte>& weights);

// Memory that a kernel writes, between guards of 64 bytes.
class Guarded {
  public:
    explicit Guarded(size_t bytes);
    std::byte* data() { return memory_.data() + kGuard; }
    const float* floats() const { return reinterpret_cast<const float*>(memory_.data() + kGuard); }
    bool guards_hold() const;

  private:
    static constexpr size_t kGuard = 64;
    std::vector<std::byte> memory_;
};

// Runs all units in ranges of random length, in random order, with subnormals flushed.
void run(const KernelImpl& kernel, const MatVecArgs& args, const std::vector<std::byte*>& buffers,
         Random& random);

// Equal bits, or both NaN.
bool same(float a, float b);

}  // namespace muser::products_test
