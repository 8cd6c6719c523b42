#include "model/weights.h"

#include <array>
#include <charconv>
#include <system_error>

#include "model/refuse.h"
#include "model/words.h"

namespace muser::model {
namespace {

enum class Width { one, hidden, q, kv, ff, head_dim, vocab };

struct Role {
    const char* name;
    Weight LayerWeights::*member;
    Width rows;  // one: a norm
    Width cols;
};

constexpr std::array roles{
    Role{"attn_norm", &LayerWeights::attn_norm, Width::one, Width::hidden},
    Role{"attn_q", &LayerWeights::attn_q, Width::q, Width::hidden},
    Role{"attn_k", &LayerWeights::attn_k, Width::kv, Width::hidden},
    Role{"attn_v", &LayerWeights::attn_v, Width::kv, Width::hidden},
    Role{"attn_gate", &LayerWeights::attn_gate, Width::q, Width::hidden},
    Role{"attn_q_norm", &LayerWeights::attn_q_norm, Width::one, Width::head_dim},
    Role{"attn_k_norm", &LayerWeights::attn_k_norm, Width::one, Width::head_dim},
    Role{"attn_output", &LayerWeights::attn_output, Width::hidden, Width::q},
    Role{"post_attention_norm", &LayerWeights::post_attention_norm, Width::one, Width::hidden},
    Role{"ffn_norm", &LayerWeights::ffn_norm, Width::one, Width::hidden},
    Role{"ffn_gate", &LayerWeights::ffn_gate, Width::ff, Width::hidden},
    Role{"ffn_up", &LayerWeights::ffn_up, Width::ff, Width::hidden},
    Role{"ffn_down", &LayerWeights::ffn_down, Width::hidden, Width::ff},
    Role{"post_ffw_norm", &LayerWeights::post_ffw_norm, Width::one, Width::hidden},
};

std::string layer_name(uint32_t layer, const char* role) {
    return words("blk.", layer, ".", role, ".weight");
}

class CensusTaker {
  public:
    CensusTaker(const Header& header, const Geometry& geometry, Bytes file)
        : header_(header), g_(geometry), file_(file) {}

    Weights run() {
        refuse_fused();
        require_all();
        refuse_unknown();
        Weights w;
        w.token_embd = weight("token_embd.weight", Width::vocab, Width::hidden);
        // Only now is the layer count backed by tensors in the file.
        w.layers.resize(g_.layers);
        for (uint32_t l = 0; l < g_.layers; ++l) {
            for (const Role& role : roles) {
                w.layers[l].*role.member = weight(layer_name(l, role.name), role.rows, role.cols);
            }
        }
        w.output_norm = weight("output_norm.weight", Width::one, Width::hidden);
        w.output = weight("output.weight", Width::vocab, Width::hidden);
        return w;
    }

  private:
    uint64_t width(Width w) const noexcept {
        switch (w) {
            case Width::one:
                return 1;
            case Width::hidden:
                return g_.hidden;
            case Width::q:
                return g_.q_width();
            case Width::kv:
                return g_.kv_width();
            case Width::ff:
                return g_.ff;
            case Width::head_dim:
                return g_.head_dim;
            case Width::vocab:
                return g_.vocab;
        }
        return 0;
    }

    // Some converters join Q, K and V into one tensor. Its rows would have to be split by type
    // and alignment, which is the converter's work.
    void refuse_fused() const {
        for (const TensorInfo& tensor : header_.tensors()) {
            if (tensor.name.find(".attn_qkv.") != std::string_view::npos) {
                refuse("fused QKV is not supported",
                       {.tensor = tensor.name, .offset = tensor.info_offset}, "attn_qkv",
                       "attn_q, attn_k and attn_v; convert the model without fusing");
            }
        }
    }

    const TensorInfo& require(const std::string& name) const {
        const TensorInfo* tensor = header_.find_tensor(name);
        if (tensor == nullptr) {
            refuse("missing tensor", {.tensor = name},
                   words("none among ", header_.tensors().size()), "one");
        }
        return *tensor;
    }

    void require_all() const {
        require("token_embd.weight");
        for (uint32_t l = 0; l < g_.layers; ++l) {
            for (const Role& role : roles) require(layer_name(l, role.name));
        }
        require("output_norm.weight");
        require("output.weight");
    }

    bool is_expected(std::string_view name) const {
        if (name == "token_embd.weight" || name == "output_norm.weight" ||
            name == "output.weight") {
            return true;
        }
        if (!name.starts_with("blk.")) return false;
        uint32_t layer = 0;
        const auto digits = std::from_chars(name.data() + 4, name.data() + name.size(), layer);
        if (digits.ec != std::errc{} || layer >= g_.layers) return false;
        for (const Role& role : roles) {
            if (name == layer_name(layer, role.name)) return true;
        }
        return false;
    }

    // After require_all(): names are unique, so a surplus in the count is a stranger.
    void refuse_unknown() const {
        const size_t expected = 3 + roles.size() * g_.layers;
        if (header_.tensors().size() == expected) return;
        for (const TensorInfo& tensor : header_.tensors()) {
            if (is_expected(tensor.name)) continue;
            refuse("unknown tensor", {.tensor = tensor.name, .offset = tensor.info_offset},
                   words("one of ", header_.tensors().size(), " tensors"),
                   words("the ", expected, " of this model"));
        }
    }

    Weight weight(const std::string& name, Width rows, Width cols) const {
        const TensorInfo& tensor = require(name);
        Weight w;
        w.name = tensor.name;
        w.type = tensor.type;
        w.rows = width(rows);
        w.cols = width(cols);
        w.file_offset = tensor.file_offset;
        w.bytes = tensor.bytes;
        w.data = file_.data() + tensor.file_offset;
        const Place place{.tensor = tensor.name, .offset = tensor.info_offset};
        const bool norm = rows == Width::one;
        const std::array<uint64_t, 4> dims{w.cols, w.rows, 1, 1};
        // A norm is one-dimensional and a matrix two-dimensional, even where a size is 1.
        if (tensor.dims != dims || tensor.n_dims != (norm ? 1U : 2U)) {
            refuse("wrong shape", place, shape_text(tensor),
                   norm ? words("(", w.cols, ")") : words("(", w.cols, ", ", w.rows, ")"));
        }
        if (norm ? w.type != TensorType::F32 : !is_matrix_type(w.type)) {
            refuse("unsupported type", place, type_name(w.type),
                   norm ? "F32" : "F32, F16, BF16, Q8_0, Q4_K, Q5_K or Q6_K");
        }
        if (is_quantised(w.type) && w.cols % 256 != 0) {
            refuse("quantised row that is not whole superblocks", place,
                   words(w.cols, " columns of ", type_name(w.type)), "a multiple of 256");
        }
        return w;
    }

    const Header& header_;
    const Geometry& g_;
    Bytes file_;
};

}  // namespace

Weights take_census(const Header& header, const Geometry& geometry, Bytes file) {
    return CensusTaker(header, geometry, file).run();
}

}  // namespace muser::model
