// The tensor types of a GGUF file: names and block sizes for every type that ggml has published,
// so that a file can be measured and its types named even where this engine cannot run them.
#pragma once

#include <cstdint>
#include <string>

namespace muser::model {

// Values are ggml's ids. Only the types this engine can run have a name here; the rest appear as
// numbers and are refused by the census (model_weights.h).
enum class TensorType : uint32_t {
    F32 = 0,
    F16 = 1,
    Q8_0 = 8,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    BF16 = 30,
};

struct TypeInfo {
    TensorType type;
    const char* name;
    uint32_t block;  // elements per block
    uint32_t bytes;  // bytes per block
};

// nullptr for an id that ggml does not define (or has withdrawn).
const TypeInfo* find_type(uint32_t id) noexcept;
// The type of a parsed tensor; its id is known to exist.
const TypeInfo& type_info(TensorType type) noexcept;
// "Q4_K", or "type 13077" for an unknown id.
std::string type_name(uint32_t id);
inline std::string type_name(TensorType type) { return type_name(static_cast<uint32_t>(type)); }

// Types that a matrix of this engine may have (F32, F16, BF16, Q8_0, Q4_K, Q5_K, Q6_K).
bool is_matrix_type(TensorType type) noexcept;
// Of those, the ones whose products read block-form activations: rows must be multiples of 256.
bool is_quantised(TensorType type) noexcept;

}  // namespace muser::model
