// A Muse Glimmer file, checked and open: mapping, geometry, weights by role.
//
// The census is exact: each expected tensor once, in its shape and a supported type, and no
// other tensor. What passes here cannot surprise a launcher later.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"
#include "model/geometry.h"
#include "model/gguf_header.h"
#include "model/mapped_file.h"

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

struct TypeCount {
    TensorType type;
    uint64_t tensors;
    uint64_t bytes;
};

struct Census {
    std::vector<TypeCount> types;  // by ascending type id
    uint64_t tensors = 0;
    uint64_t weight_bytes = 0;
    uint64_t bytes_per_token =
        0;  // read per decoded token: all but the embedding table's other rows
    uint64_t header_bytes = 0;
    uint64_t metadata_keys = 0;
};

// What the tokenizer needs, as stored. Absent optional keys stay empty; a present key of a wrong
// type, or an id outside the vocabulary, is a GGUFError.
struct TokenizerKeys {
    std::string_view model;
    std::string_view pre;
    std::string_view chat_template;
    StringArray tokens;
    StringArray merges;
    Bytes token_types;  // little-endian int32 per token, not aligned; empty where absent
    std::optional<uint32_t> bos, eos, eot, eom, pad, unknown;
    std::optional<bool> add_bos, add_eos, add_sep;
};

struct ByteRange {
    std::string_view name;  // tensor name; "header" for the header
    uint64_t offset;
    uint64_t length;
};

class Model {
  public:
    // Maps and checks. GGUFError.
    static Model open(const std::string& path);
    // The same over bytes in memory, which must outlive the Model and start at a multiple of 8.
    static Model from_bytes(Bytes file);

    const Header& header() const noexcept { return header_; }
    const Geometry& geometry() const noexcept { return geometry_; }
    Bytes bytes() const noexcept { return bytes_; }
    const MappedFile* file() const noexcept { return file_.get(); }  // nullptr for from_bytes

    const Weight& token_embd() const noexcept { return token_embd_; }
    const std::vector<LayerWeights>& layers() const noexcept { return layers_; }
    const Weight& output_norm() const noexcept { return output_norm_; }
    const Weight& output() const noexcept { return output_; }
    // Every weight: embedding, layers in order, output_norm, output.
    std::vector<const Weight*> weights() const;

    const Census& census() const noexcept { return census_; }
    const TokenizerKeys& tokenizer() const noexcept { return tokenizer_; }
    // Things a working file should not have, told and not refused.
    const std::vector<std::string>& warnings() const noexcept { return warnings_; }

    // What a fingerprint covers: the header, then each tensor's first and last MiB in file order
    // (one range where they meet).
    std::vector<ByteRange> fingerprint_ranges() const;

  private:
    Model(Bytes bytes, std::unique_ptr<MappedFile> file);

    std::unique_ptr<MappedFile> file_;  // first: everything below points into it
    Bytes bytes_;
    Header header_;
    std::vector<std::string> warnings_;
    Geometry geometry_;
    Weight token_embd_, output_norm_, output_;
    std::vector<LayerWeights> layers_;
    Census census_;
    TokenizerKeys tokenizer_;
};

}  // namespace muser::model
