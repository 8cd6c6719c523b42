#include "device/cpu/products.h"

#include "contract/blocks.h"

namespace muser::device::cpu {

WeightLayout product_layout(Isa, const WeightShape& shape) {
    const contract::WeightTypeInfo* info = contract::find_weight_type(shape.type);
    if (info == nullptr) return {"", 0};
    return {"", shape.rows * (shape.cols / info->block_elements * info->block_bytes)};
}

void product_repack(Isa, const WeightShape& shape, const WeightLayout& layout,
                    const std::byte* rows, std::byte* destination, uint64_t begin, uint64_t end) {
    const uint64_t row_bytes = layout.bytes / shape.rows;
    __builtin_memcpy(destination + begin * row_bytes, rows + begin * row_bytes,
                     (end - begin) * row_bytes);
}

}  // namespace muser::device::cpu
