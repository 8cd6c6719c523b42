#include "model/geometry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "model/refuse.h"
#include "model/words.h"

namespace muser::model {
namespace {

constexpr std::array<std::string_view, 2> architectures{"muse-glimmer", "muse_glimmer"};

// Keys of the model's prefix that are read here, or that say nothing about the arithmetic.
constexpr std::array<std::string_view, 18> known_keys{
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "logit_scale",
    "final_logit_softcapping",
    "vocab_size",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
};

// Keys that other architectures use to change the arithmetic. This model has none of it, so a
// file that carries one is another model, or one that this engine would compute wrongly.
constexpr std::array<std::string_view, 13> refused_prefixes{
    "rope.scaling",        "rope.scale_linear",        "attention.scale",
    "attn_logit_softcap",  "router_logit_softcap",     "attention.temperature",
    "embedding_scale",     "residual_scale",           "expert_",
    "attention.clamp_kqv", "attention.max_alibi_bias", "attention.layer_norm_epsilon",
    "attention.causal",
};

std::string number(double value) {
    std::array<char, 32> out{};
    std::snprintf(out.data(), out.size(), "%.9g", value);
    return out.data();
}

class GeometryReader {
  public:
    GeometryReader(const Header& header, std::vector<std::string>& warnings)
        : header_(header), warnings_(warnings) {}

    Geometry run() {
        read_names();
        refuse_other_arithmetic();
        g_.layers = count("block_count", 1, max_layers);
        g_.hidden = count("embedding_length", min_width, max_hidden);
        g_.ff = count("feed_forward_length", min_width, max_ff);
        g_.context = count("context_length", 1, max_context);
        read_heads();
        g_.window = count("attention.sliding_window", 1, max_window);
        read_pattern();
        g_.eps = positive("attention.layer_norm_rms_epsilon", 0.1F);
        g_.logit_scale = positive("logit_scale", 1e6F);
        g_.softcap = positive("final_logit_softcapping", 1e6F);
        read_rope();
        read_vocab();
        warn_of_unknown_keys();
        return g_;
    }

  private:
    std::string key(std::string_view suffix) const { return g_.prefix + std::string(suffix); }

    [[noreturn]] void bad(std::string_view suffix, const std::string& found,
                          const std::string& expected) const {
        const std::string name = key(suffix);
        refuse("impossible value", {.key = name, .offset = header_.find(name)->offset}, found,
               expected);
    }

    bool present(std::string_view suffix) const { return header_.find(key(suffix)) != nullptr; }

    void read_names() {
        g_.architecture = header_.string("general.architecture");
        if (std::find(architectures.begin(), architectures.end(), g_.architecture) ==
            architectures.end()) {
            refuse("another model architecture",
                   {.key = "general.architecture",
                    .offset = header_.find("general.architecture")->offset},
                   g_.architecture.empty() ? "an empty string" : printable(g_.architecture),
                   "muse-glimmer or muse_glimmer");
        }
        // Renaming tools have left the two spellings mixed: the prefix is the one in use.
        g_.prefix = words(g_.architecture, ".");
        for (const std::string_view other : architectures) {
            if (present("block_count")) break;
            const std::string prefix = words(other, ".");
            if (header_.find(words(prefix, "block_count")) != nullptr) g_.prefix = prefix;
        }
    }

    void refuse_other_arithmetic() const {
        for (const Entry& entry : header_.entries()) {
            if (!entry.key.starts_with(g_.prefix)) continue;
            const std::string_view suffix = entry.key.substr(g_.prefix.size());
            for (const std::string_view refused : refused_prefixes) {
                if (!suffix.starts_with(refused)) continue;
                refuse("arithmetic that this model does not have",
                       {.key = entry.key, .offset = entry.offset}, "the key", "no such key");
            }
        }
    }

    uint32_t count(std::string_view suffix, uint32_t low, uint32_t high) const {
        const uint32_t value = header_.u32(key(suffix));
        if (value < low || value > high) {
            bad(suffix, std::to_string(value), words(low, " to ", high));
        }
        return value;
    }

    // Normal and positive: contract arithmetic reads a subnormal as zero.
    float positive(std::string_view suffix, float high) const {
        const float value = header_.f32(key(suffix));
        if (!std::isnormal(value) || value < 0 || value > high) {
            bad(suffix, number(value), words("a normal number above 0, at most ", number(high)));
        }
        return value;
    }

    void read_heads() {
        g_.heads = count("attention.head_count", 1, max_heads);
        g_.kv_heads = count("attention.head_count_kv", 1, max_heads);
        if (g_.heads % g_.kv_heads != 0) {
            bad("attention.head_count_kv", std::to_string(g_.kv_heads),
                words("a divisor of the ", g_.heads, " heads"));
        }
        g_.head_dim = count("attention.key_length", 2, max_head_dim);
        if (g_.head_dim % 2 != 0) {
            bad("attention.key_length", std::to_string(g_.head_dim), "an even number");
        }
        must_equal("attention.value_length", g_.head_dim, "attention.key_length");
    }

    void must_equal(std::string_view suffix, uint32_t expected, std::string_view other) const {
        const uint32_t value = header_.u32(key(suffix));
        if (value != expected) {
            bad(suffix, std::to_string(value), words(expected, ", as ", other));
        }
    }

    // Two spellings: one bool per layer (true: local), or a period, the last layer of each period
    // being global.
    void read_pattern() {
        constexpr std::string_view suffix = "attention.sliding_window_pattern";
        const Entry* entry = header_.find(key(suffix));
        if (entry != nullptr && entry->type == ValueType::U32) {
            const uint32_t period = count(suffix, 1, max_layers);
            for (uint32_t l = 0; l < g_.layers; ++l) {
                g_.is_local.push_back(l % period < period - 1);
            }
            return;
        }
        const Entry& flags = header_.array(key(suffix), ValueType::Bool);
        if (flags.count != g_.layers) {
            bad(suffix, words(flags.count, " flags"), words(g_.layers, ", one per layer"));
        }
        for (const std::byte flag : flags.bytes) g_.is_local.push_back(flag != std::byte{0});
    }

    // Only local layers rotate, so their own base, where a file states one, is the one in force.
    void read_rope() {
        g_.rope_base = rope_base("rope.freq_base");
        if (present("rope.freq_base_swa")) g_.rope_base = rope_base("rope.freq_base_swa");
        for (const std::string_view suffix : {"rope.dimension_count", "rope.dimension_count_swa"}) {
            if (present(suffix)) must_equal(suffix, g_.head_dim, "attention.key_length");
        }
    }

    float rope_base(std::string_view suffix) const {
        const float value = positive(suffix, 1e12F);
        if (value <= 1) bad(suffix, number(value), "above 1");
        return value;
    }

    void read_vocab() {
        const Entry& tokens = header_.array("tokenizer.ggml.tokens", ValueType::String);
        if (tokens.count < 1 || tokens.count > max_vocab) {
            refuse("impossible vocabulary", {.key = tokens.key, .offset = tokens.offset},
                   words(tokens.count, " tokens"), words("1 to ", max_vocab));
        }
        g_.vocab = static_cast<uint32_t>(tokens.count);
        if (present("vocab_size")) must_equal("vocab_size", g_.vocab, "tokenizer.ggml.tokens");
    }

    void warn_of_unknown_keys() {
        for (const Entry& entry : header_.entries()) {
            for (const std::string_view architecture : architectures) {
                const std::string prefix = words(architecture, ".");
                if (!entry.key.starts_with(prefix)) continue;
                const std::string_view suffix = entry.key.substr(prefix.size());
                if (prefix == g_.prefix &&
                    std::find(known_keys.begin(), known_keys.end(), suffix) != known_keys.end()) {
                    continue;
                }
                warnings_.push_back(
                    words("key ", printable(entry.key), " is not known and has no effect"));
            }
        }
    }

    // Below this a width is a damaged count: the norms alone have 32 partial sums.
    static constexpr uint32_t min_width = 32;

    const Header& header_;
    std::vector<std::string>& warnings_;
    Geometry g_;
};

}  // namespace

uint32_t Geometry::local_layers() const noexcept {
    return static_cast<uint32_t>(std::count(is_local.begin(), is_local.end(), true));
}

Geometry read_geometry(const Header& header, std::vector<std::string>& warnings) {
    return GeometryReader(header, warnings).run();
}

}  // namespace muser::model
