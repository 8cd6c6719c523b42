// The mat-vec products, each over the matrices of the model that use it.
//
// A decoded token reads every weight once, so no weight is ever in a cache. Each case therefore
// walks through copies of its matrix that together are larger than any cache.
#include <algorithm>

#include "bench/cases.h"
#include "contract/blocks.h"

namespace muser::bench {
namespace {

using contract::WeightType;
using device::Device;

constexpr uint64_t kWalk = uint64_t{600} << 20;

struct Product {
    const char* tensor;
    const char* type_name;
    WeightType type;
    uint32_t rows, cols;
    bool silu;
};

// lm_head is a quarter of its rows: the speed is the same and it is made four times as fast.
constexpr Product kProducts[] = {
    {"attn_q", "q4_K", WeightType::Q4_K, 4096, kHidden, false},
    {"attn_k", "q4_K", WeightType::Q4_K, 256, kHidden, false},
    {"attn_v", "q6_K", WeightType::Q6_K, 256, kHidden, false},
    {"attn_output", "q4_K", WeightType::Q4_K, kHidden, 4096, false},
    {"ffn_gate", "q4_K", WeightType::Q4_K, kFfn, kHidden, false},
    {"ffn_down", "q4_K", WeightType::Q4_K, kHidden, kFfn, false},
    {"ffn_down", "q6_K", WeightType::Q6_K, kHidden, kFfn, false},
    {"lm_head_quarter", "q5_K", WeightType::Q5_K, kVocab / 4, kHidden, false},
    {"ffn_gate", "q8_0", WeightType::Q8_0, kFfn, kHidden, false},
    {"ffn_gate_up", "q4_K", WeightType::Q4_K, kFfn, kHidden, true},
    {"ffn_gate_up", "q5_K", WeightType::Q5_K, kFfn, kHidden, true},
    {"ffn_gate_up", "q6_K", WeightType::Q6_K, kFfn, kHidden, true},
    {"ffn_gate_up", "q8_0", WeightType::Q8_0, kFfn, kHidden, true},
    {"attn_q", "f32", WeightType::F32, 4096, kHidden, false},
    {"attn_q", "f16", WeightType::F16, 4096, kHidden, false},
    {"attn_q", "bf16", WeightType::BF16, 4096, kHidden, false},
};

// `count` matrices one after the other, in the device's layout. Bytes are arbitrary: any are valid
// weights, and no product's speed depends on them, as long as no f16 factor is a NaN.
BufferRef matrices(Device& device, const Product& p, const device::WeightLayout& layout,
                   uint64_t count) {
    BufferRef buffer = device.allocate(layout.bytes * count, device::MemoryUse::weights);
    std::vector<std::byte> rows(p.rows * contract::row_bytes(p.type, p.cols), std::byte{0x2c});
    const device::WeightShape shape = {static_cast<uint32_t>(p.type), p.rows, p.cols};
    for (uint64_t i = 0; i < count; ++i) {
        if (layout.suffix.empty()) {
            device.write(*buffer, i * layout.bytes, rows.data(), rows.size());
        } else {
            device.repack(shape, layout, rows.data(), *buffer, i * layout.bytes);
        }
    }
    return buffer;
}

Prepared prepare(Device& device, const Product& p) {
    const bool quantised = contract::weight_type_info(p.type).quantised;
    const device::WeightLayout layout =
        device.layout({static_cast<uint32_t>(p.type), p.rows, p.cols});
    // Of at least two matrices, so that gate and up of the fused product differ.
    const uint64_t count = std::max<uint64_t>(2, kWalk / layout.bytes);
    const BufferRef weights = matrices(device, p, layout, count);
    const BufferRef x = quantised ? block_form(device, p.cols) : vector(device, p.cols);
    const BufferRef y = vector(device, p.rows);
    const BufferRef form = memory(device, MUSER_BLOCK_FORM_BYTES(uint64_t{p.rows}));
    Prepared made;
    made.kernel = std::string(p.silu ? "mul_mv_silu_" : "mul_mv_") + p.type_name +
                  (quantised ? "_b16" : "_f32") + layout.suffix;
    made.args = as_args(MatVecArgs{p.rows, p.cols, 1, p.silu ? p.rows / MUSER_BLOCK : 0});
    const uint64_t bytes = layout.bytes;
    const bool silu = p.silu;
    made.buffers = [=](uint64_t turn) -> std::vector<Bound> {
        if (!silu) return {{weights, turn % count * bytes}, {x}, {y}};
        return {{weights, 2 * turn % count * bytes},
                {weights, (2 * turn + 1) % count * bytes},
                {x},
                {y},
                {form}};
    };
    made.bytes = static_cast<double>(bytes) * (silu ? 2 : 1);
    return made;
}

}  // namespace

std::vector<Case> product_cases() {
    std::vector<Case> cases;
    for (const Product& p : kProducts) {
        const std::string name =
            std::string(p.silu ? "mul_mv_silu_" : "mul_mv_") + p.type_name + "/" + p.tensor;
        cases.push_back({name, [p](Device& device) { return prepare(device, p); }});
    }
    return cases;
}

}  // namespace muser::bench
