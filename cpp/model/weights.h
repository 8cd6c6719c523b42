// The weights of a Muse Glimmer file by role, and the census that admits them.
//
// The census is exact: each expected tensor once, in its shape and a supported type, and no
// other tensor. What passes here cannot surprise a launcher later.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"
#include "model/geometry.h"
#include "model/gguf_header.h"

namespace muser::model {

struct Weight {
    std::string_view name;
    TensorType type = TensorType::F32;
    uint64_t rows = 0;  // outputs; 1 for a norm
    uint64_t cols = 0;  // inputs, contiguous; quantised rows are multiples of 256
    uint64_t file_offset = 0;
    uint64_t bytes = 0;
    const std::byte* data = nullptr;  // file_offset within the mapping

    uint64_t row_bytes() const noexcept { return bytes / rows; }
    // Norms only (F32). The mapping is page-aligned and tensors start at multiples of 8.
    const float* f32() const noexcept { return reinterpret_cast<const float*>(data); }
};

// In the order the token graph meets them.
struct LayerWeights {
    Weight attn_norm;            // F32 [hidden]
    Weight attn_q;               // [heads*head_dim, hidden]
    Weight attn_k;               // [kv_heads*head_dim, hidden]
    Weight attn_v;               // [kv_heads*head_dim, hidden]
    Weight attn_gate;            // [heads*head_dim, hidden]
    Weight attn_q_norm;          // F32 [head_dim]
    Weight attn_k_norm;          // F32 [head_dim]
    Weight attn_output;          // [hidden, heads*head_dim]
    Weight post_attention_norm;  // F32 [hidden]
    Weight ffn_norm;             // F32 [hidden]
    Weight ffn_gate;             // [ff, hidden]
    Weight ffn_up;               // [ff, hidden]
    Weight ffn_down;             // [hidden, ff]
    Weight post_ffw_norm;        // F32 [hidden]
};

struct Weights {
    Weight token_embd;  // [vocab, hidden]
    std::vector<LayerWeights> layers;
    Weight output_norm;  // F32 [hidden]
    Weight output;       // [vocab, hidden]
};

// GGUFError (tensor, found, expected): missing, unknown, fused QKV, wrong shape, wrong type.
Weights take_census(const Header& header, const Geometry& geometry, Bytes file);

// Reads every norm weight. A NaN or infinity is a GGUFError; values that a converter of this
// model never writes (a query scale other than 3.87, a "+1" missing or added twice) are warnings.
void check_norms(const Weights& weights, std::vector<std::string>& warnings);

}  // namespace muser::model
