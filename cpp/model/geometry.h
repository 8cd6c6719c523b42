// The shape of a Muse Glimmer model, read from the metadata of its GGUF file.
//
// Every key that changes numbers is required; nothing has a neutral default. The one constant
// without a key is post_eps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"
#include "model/gguf_header.h"

namespace muser::model {

struct Geometry {
    std::string architecture;  // as found: muse-glimmer or muse_glimmer
    std::string prefix;        // of the model's keys, with the dot; nearly always "ARCHITECTURE."
    uint32_t layers = 0;
    uint32_t hidden = 0;
    uint32_t heads = 0;
    uint32_t kv_heads = 0;
    uint32_t head_dim = 0;
    uint32_t ff = 0;
    uint32_t vocab = 0;
    uint32_t window = 0;     // keys a local query sees, itself included
    uint32_t context = 0;    // positions the model was made for
    float rope_base = 0;     // local layers only; global layers do not rotate
    float eps = 0;           // pre-norms, QK norms, embedding norm, final norm
    float post_eps = 1e-8F;  // post-attention and post-FFN norms; a constant of the architecture
    float logit_scale = 0;
    float softcap = 0;
    std::vector<bool> is_local;  // per layer: sliding window and RoPE, or global without RoPE

    uint32_t q_width() const noexcept { return heads * head_dim; }
    uint32_t kv_width() const noexcept { return kv_heads * head_dim; }
    uint32_t local_layers() const noexcept;
    uint32_t global_layers() const noexcept { return layers - local_layers(); }
};

// Limits beyond which a value is a damaged file, not a model. They keep every product of shapes
// used by the engine inside 64 bits, and n <= 2^24 keeps f32(n) of the RMS norm exact.
inline constexpr uint32_t max_layers = 1024;
inline constexpr uint32_t max_hidden = 1U << 20;
inline constexpr uint32_t max_ff = 1U << 22;
inline constexpr uint32_t max_heads = 1024;
inline constexpr uint32_t max_head_dim = 1024;
inline constexpr uint32_t max_vocab = 1U << 24;
inline constexpr uint32_t max_window = 1U << 24;
inline constexpr uint32_t max_context = 1U << 24;

// Reads and checks. GGUFError with the facts key, found, expected (and offset where the key is
// there). Keys of the model's prefix that are not known, and so have no effect, are told in
// `warnings`.
Geometry read_geometry(const Header& header, std::vector<std::string>& warnings);

}  // namespace muser::model
