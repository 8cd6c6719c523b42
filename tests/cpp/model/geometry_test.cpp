// The model's shape from metadata: every key required, every value checked, both spellings.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "expect_refusal.h"
#include "gguf_builder.h"
#include "model/geometry.h"

namespace muser::test {
namespace {

using model::Geometry;

Geometry read(const GgufBuilder& b, std::vector<std::string>* warnings = nullptr) {
    const Buffer file = b.build();
    std::vector<std::string> own;
    return model::read_geometry(model::Header::parse(view(file)),
                                warnings != nullptr ? *warnings : own);
}

TEST(Geometry, AsWritten) {
    std::vector<std::string> warnings;
    const Geometry g = read(tiny_model(), &warnings);
    EXPECT_EQ(g.architecture, "muse-glimmer");
    EXPECT_EQ(g.prefix, "muse-glimmer.");
    EXPECT_EQ(g.layers, 4U);
    EXPECT_EQ(g.hidden, 32U);
    EXPECT_EQ(g.heads, 2U);
    EXPECT_EQ(g.kv_heads, 1U);
    EXPECT_EQ(g.head_dim, 4U);
    EXPECT_EQ(g.ff, 64U);
    EXPECT_EQ(g.vocab, 12U);
    EXPECT_EQ(g.window, 16U);
    EXPECT_EQ(g.context, 256U);
    EXPECT_EQ(g.rope_base, 500000.0F);
    EXPECT_EQ(g.eps, 1e-5F);
    EXPECT_EQ(g.post_eps, 1e-8F);
    EXPECT_EQ(g.logit_scale, 0.19611613F);
    EXPECT_EQ(g.softcap, 20.0F);
    EXPECT_EQ(g.is_local, (std::vector<bool>{true, true, true, false}));
    EXPECT_EQ(g.local_layers(), 3U);
    EXPECT_EQ(g.global_layers(), 1U);
    EXPECT_EQ(g.q_width(), 8U);
    EXPECT_EQ(g.kv_width(), 4U);
    EXPECT_TRUE(warnings.empty());
}

TEST(Geometry, BothPatternSpellingsAreEqual) {
    for (const uint32_t layers : {1U, 4U, 7U, 8U, 52U}) {
        const Geometry flags = read(tiny_model({.layers = layers}));
        const Geometry period = read(tiny_model({.layers = layers, .pattern_period = 4}));
        EXPECT_EQ(flags.is_local, period.is_local);
        for (uint32_t l = 0; l < layers; ++l) EXPECT_EQ(flags.is_local[l], l % 4 != 3) << l;
    }
    EXPECT_EQ(read(tiny_model({.pattern_period = 1})).local_layers(), 0U);
    EXPECT_EQ(read(tiny_model({.pattern_period = 9})).local_layers(), 4U);
}

TEST(Geometry, BothArchitectureSpellings) {
    EXPECT_EQ(read(tiny_model({.architecture = "muse_glimmer"})).layers, 4U);
    // A renamed architecture whose keys kept the other prefix.
    GgufBuilder b = tiny_model();
    b.string("general.architecture", "muse_glimmer");
    const Geometry g = read(b);
    EXPECT_EQ(g.architecture, "muse_glimmer");
    EXPECT_EQ(g.prefix, "muse-glimmer.");
}

TEST(Geometry, AnotherArchitectureIsNamed) {
    for (const char* other : {"llama", "muse", "muse-glimmer2", "dflash", ""}) {
        GgufBuilder b = tiny_model();
        b.string("general.architecture", other);
        const GGUFError error = refusal("another model architecture", [&] { read(b); });
        EXPECT_NE(fact(error, "expected").find("muse-glimmer"), std::string::npos);
        EXPECT_EQ(fact(error, "found"), *other != 0 ? other : "an empty string");
    }
}

const std::vector<std::string> required_keys{
    "general.architecture",
    "muse-glimmer.block_count",
    "muse-glimmer.context_length",
    "muse-glimmer.embedding_length",
    "muse-glimmer.feed_forward_length",
    "muse-glimmer.attention.head_count",
    "muse-glimmer.attention.head_count_kv",
    "muse-glimmer.attention.key_length",
    "muse-glimmer.attention.value_length",
    "muse-glimmer.attention.layer_norm_rms_epsilon",
    "muse-glimmer.attention.sliding_window",
    "muse-glimmer.attention.sliding_window_pattern",
    "muse-glimmer.rope.freq_base",
    "muse-glimmer.logit_scale",
    "muse-glimmer.final_logit_softcapping",
    "tokenizer.ggml.tokens",
};

TEST(Geometry, EachRequiredKeyMissing) {
    for (const std::string& key : required_keys) {
        SCOPED_TRACE(key);
        GgufBuilder b = tiny_model();
        b.remove(key);
        const GGUFError error = refused_model("missing key", b.build());
        EXPECT_EQ(fact(error, "key"), key);
    }
}

TEST(Geometry, EachRequiredKeyOfAnotherType) {
    const Encoder others[] = {
        Encoder().u32(u8_id).u8(1),
        Encoder().u32(i32_id).u32(4),
        Encoder().u32(u64_id).u64(4),
        Encoder().u32(f64_id).u64(0x3FF0000000000000),
        Encoder().u32(bool_id).u8(1),
        Encoder().u32(array_id).u32(i32_id).u64(1).u32(4),
        Encoder().u32(array_id).u32(u32_id).u64(1).u32(4),
    };
    for (const std::string& key : required_keys) {
        for (const Encoder& other : others) {
            SCOPED_TRACE(key);
            GgufBuilder b = tiny_model();
            b.set(key, other);
            const GGUFError error = refused_model("type", b.build());
            EXPECT_EQ(fact(error, "key"), key);
            EXPECT_NE(fact(error, "offset"), "");
        }
    }
}

TEST(Geometry, ImpossibleCounts) {
    const struct {
        const char* suffix;
        std::vector<uint32_t> values;
    } cases[] = {
        {"block_count", {0, 1025, 0xFFFFFFFF}},
        {"context_length", {0, (1U << 24) + 1, 0xFFFFFFFF}},
        {"embedding_length", {0, 1, 31, (1U << 20) + 1, 0xFFFFFFFF}},
        {"feed_forward_length", {0, 31, (1U << 22) + 1, 0xFFFFFFFF}},
        {"attention.head_count", {0, 1025, 0xFFFFFFFF}},
        {"attention.head_count_kv", {0, 3, 4, 0xFFFFFFFF}},
        {"attention.key_length", {0, 1, 3, 1026, 0xFFFFFFFF}},
        {"attention.value_length", {0, 2, 6, 0xFFFFFFFF}},
        {"attention.sliding_window", {0, (1U << 24) + 1, 0xFFFFFFFF}},
        {"attention.sliding_window_pattern", {0, 1025, 0xFFFFFFFF}},
        {"rope.dimension_count", {0, 2, 8}},
        {"vocab_size", {0, 11, 13}},
    };
    for (const auto& c : cases) {
        for (const uint32_t value : c.values) {
            SCOPED_TRACE(std::string(c.suffix) + " = " + std::to_string(value));
            GgufBuilder b = tiny_model();
            b.u32(std::string("muse-glimmer.") + c.suffix, value);
            const GGUFError error = refused_model("impossible value", b.build());
            EXPECT_EQ(fact(error, "key"), std::string("muse-glimmer.") + c.suffix);
            EXPECT_EQ(fact(error, "found"), std::to_string(value));
        }
    }
}

TEST(Geometry, ImpossibleNumbers) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float inf = std::numeric_limits<float>::infinity();
    const struct {
        const char* suffix;
        std::vector<float> also;
    } cases[] = {{"attention.layer_norm_rms_epsilon", {0.5F, 1e-39F}},
                 {"logit_scale", {1e7F}},
                 {"final_logit_softcapping", {1e7F}},
                 {"rope.freq_base", {1.0F, 0.5F, 1e13F}}};
    for (const auto& c : cases) {
        std::vector<float> values{nan, inf, -inf, 0.0F, -0.0F, -1.0F, 1e-45F};
        values.insert(values.end(), c.also.begin(), c.also.end());
        for (const float value : values) {
            SCOPED_TRACE(std::string(c.suffix) + " = " + std::to_string(value));
            GgufBuilder b = tiny_model();
            b.f32(std::string("muse-glimmer.") + c.suffix, value);
            refused_model("impossible value", b.build());
        }
    }
}

TEST(Geometry, PatternOfAnotherLength) {
    for (const size_t n : {0U, 3U, 5U, 52U}) {
        GgufBuilder b = tiny_model();
        b.bools("muse-glimmer.attention.sliding_window_pattern", std::vector<uint8_t>(n, 1));
        const GGUFError error = refused_model("impossible value", b.build());
        EXPECT_EQ(fact(error, "found"), std::to_string(n) + " flags");
    }
}

TEST(Geometry, OptionalKeysThatAgree) {
    GgufBuilder b = tiny_model();
    b.u32("muse-glimmer.rope.dimension_count", 4);
    b.u32("muse-glimmer.vocab_size", 12);
    std::vector<std::string> warnings;
    EXPECT_EQ(read(b, &warnings).vocab, 12U);
    EXPECT_TRUE(warnings.empty());
    // Only local layers rotate, so their own base is the one in force.
    b.f32("muse-glimmer.rope.freq_base_swa", 10000.0F);
    EXPECT_EQ(read(b).rope_base, 10000.0F);
}

TEST(Geometry, KeysOfOtherArithmeticAreRefused) {
    for (const char* suffix :
         {"rope.scaling.type", "rope.scaling.factor", "rope.scale_linear", "attention.scale",
          "attn_logit_softcapping", "expert_count", "residual_scale", "embedding_scale"}) {
        SCOPED_TRACE(suffix);
        GgufBuilder b = tiny_model();
        b.f32(std::string("muse-glimmer.") + suffix, 1.0F);
        refused_model("arithmetic that this model does not have", b.build());
    }
}

TEST(Geometry, UnknownKeysAreTold) {
    GgufBuilder b = tiny_model();
    b.u32("muse-glimmer.novelty", 1);
    b.u32("muse_glimmer.block_count", 9);
    b.u32("general.whatever", 1);  // not the model's prefix: nobody's business
    std::vector<std::string> warnings;
    EXPECT_EQ(read(b, &warnings).layers, 4U);
    ASSERT_EQ(warnings.size(), 2U);
    EXPECT_NE(warnings[0].find("muse-glimmer.novelty"), std::string::npos);
    EXPECT_NE(warnings[1].find("muse_glimmer.block_count"), std::string::npos);
}

}  // namespace
}  // namespace muser::test
