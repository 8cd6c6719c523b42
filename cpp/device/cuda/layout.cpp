#include "device/cuda/layout.h"

#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {
namespace {

struct Entry {
    uint32_t ggml_type;
    R32Shape shape;
};

constexpr Entry kShapes[] = {
    {8, {MUSER_R32_Q8_0, 272, 8}},
    {12, {MUSER_R32_Q4_K, 144, 2}},
    {13, {MUSER_R32_Q5_K, 176, 2}},
    {14, {MUSER_R32_Q6_K, 210, 1}},
};

}  // namespace

const R32Shape* r32_shape(uint32_t ggml_type) {
    for (const Entry& entry : kShapes) {
        if (entry.ggml_type == ggml_type) return &entry.shape;
    }
    return nullptr;
}

WeightLayout weight_layout(const WeightShape& shape) {
    const R32Shape* r32 = r32_shape(shape.type);
    if (r32 == nullptr) {
        const uint64_t element = shape.type == 0 ? 4 : 2;  // f32; f16, bf16
        return {"", shape.rows * shape.cols * element};
    }
    const uint64_t groups = (shape.rows + kGroupRows - 1) / kGroupRows;
    return {"_r32", groups * (shape.cols / 256) * r32->group_bytes()};
}

}  // namespace muser::device::cuda
