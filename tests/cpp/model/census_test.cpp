// Weights by role: what must be there, in which shape and type, and what a file tells about itself.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "expect_refusal.h"
#include "gguf_builder.h"
#include "model/model_weights.h"

namespace muser::test {
namespace {

using model::Model;
using model::TensorType;
using model::Weight;

std::vector<std::string> warnings_of(const GgufBuilder& b) {
    const Buffer file = b.build();
    return Model::from_bytes(view(file)).warnings();
}

TEST(Census, WeightsByRole) {
    GgufBuilder b = tiny_model();
    b.tensor("blk.2.ffn_norm.weight").fill = 1.25F;
    const Buffer file = b.build();
    const Model m = Model::from_bytes(view(file));
    ASSERT_EQ(m.layers().size(), 4U);
    EXPECT_EQ(m.token_embd().name, "token_embd.weight");
    EXPECT_EQ(m.token_embd().rows, 12U);
    EXPECT_EQ(m.token_embd().cols, 32U);
    EXPECT_EQ(m.token_embd().row_bytes(), 128U);
    EXPECT_EQ(m.output().name, "output.weight");
    EXPECT_EQ(m.output_norm().rows, 1U);
    const model::LayerWeights& l = m.layers()[2];
    EXPECT_EQ(l.attn_output.rows, 32U);
    EXPECT_EQ(l.attn_output.cols, 8U);
    EXPECT_EQ(l.ffn_down.rows, 32U);
    EXPECT_EQ(l.ffn_down.cols, 64U);
    EXPECT_EQ(l.ffn_norm.name, "blk.2.ffn_norm.weight");
    EXPECT_EQ(l.ffn_norm.f32()[31], 1.25F);
    EXPECT_EQ(l.attn_q_norm.f32()[3], 3.87F);
    EXPECT_TRUE(m.warnings().empty());

    // Each tensor of the file under exactly one role, at its own bytes.
    std::set<std::string> names;
    for (const Weight* w : m.weights()) {
        names.emplace(w->name);
        EXPECT_EQ(w->data, file.data() + w->file_offset);
        EXPECT_EQ(w->bytes, m.header().find_tensor(w->name)->bytes);
    }
    EXPECT_EQ(names.size(), b.tensors.size());
    EXPECT_EQ(m.weights().size(), b.tensors.size());
    EXPECT_NE(names.find("blk.3.post_ffw_norm.weight"), names.end());
}

TEST(Census, EverySupportedType) {
    const Buffer file = tiny_mixed_model().build();
    const Model m = Model::from_bytes(view(file));
    std::set<TensorType> types;
    uint64_t tensors = 0;
    for (const model::TypeCount& count : m.census().types) {
        types.insert(count.type);
        tensors += count.tensors;
    }
    EXPECT_EQ(types, (std::set<TensorType>{TensorType::F32, TensorType::F16, TensorType::BF16,
                                           TensorType::Q8_0, TensorType::Q4_K, TensorType::Q5_K,
                                           TensorType::Q6_K}));
    EXPECT_EQ(tensors, 59U);
    EXPECT_EQ(m.layers()[0].ffn_down.row_bytes(), 420U);
    EXPECT_EQ(m.layers()[1].attn_v.row_bytes(), 272U);
}

TEST(Census, EachTensorMissing) {
    const GgufBuilder whole = tiny_model({.layers = 2});
    for (const BuiltTensor& t : whole.tensors) {
        SCOPED_TRACE(t.name);
        GgufBuilder b = whole;
        b.remove_tensor(t.name);
        EXPECT_EQ(fact(refused_model("missing tensor", b.build()), "tensor"), t.name);
    }
}

TEST(Census, EachTensorRenamed) {
    const GgufBuilder whole = tiny_model({.layers = 2});
    for (const BuiltTensor& t : whole.tensors) {
        SCOPED_TRACE(t.name);
        GgufBuilder b = whole;
        b.tensor(t.name).name = t.name + "s";
        EXPECT_EQ(fact(refused_model("missing tensor", b.build()), "tensor"), t.name);
    }
}

TEST(Census, EachTensorOfAnotherShape) {
    const GgufBuilder whole = tiny_model({.layers = 2});
    for (const BuiltTensor& t : whole.tensors) {
        SCOPED_TRACE(t.name);
        std::vector<std::vector<uint64_t>> shapes;
        for (size_t i = 0; i < t.dims.size(); ++i) {
            shapes.push_back(t.dims);
            shapes.back()[i] -= 1;
            shapes.push_back(t.dims);
            shapes.back()[i] += 1;
        }
        shapes.push_back(t.dims);
        shapes.back().push_back(1);
        if (t.dims.size() == 2) {
            shapes.push_back({t.dims[1], t.dims[0]});
            shapes.push_back({t.dims[0] * t.dims[1]});
        }
        for (const auto& dims : shapes) {
            if (dims == t.dims) continue;
            GgufBuilder b = whole;
            b.tensor(t.name).dims = dims;
            EXPECT_EQ(fact(refused_model("wrong shape", b.build()), "tensor"), t.name);
        }
    }
}

TEST(Census, EachTensorOfAnUnsupportedType) {
    const GgufBuilder whole = tiny_mixed_model();
    for (const BuiltTensor& t : whole.tensors) {
        SCOPED_TRACE(t.name);
        const bool norm = t.dims.size() == 1;
        // A norm that is not F32 would change the arithmetic silently; a matrix type that has no
        // kernel would too, if it were expanded.
        const std::vector<uint32_t> types =
            norm ? std::vector<uint32_t>{F16, BF16} : std::vector<uint32_t>{Q4_0, Q3_K, I8};
        for (const uint32_t type : types) {
            GgufBuilder b = whole;
            b.tensor(t.name).type = type;
            const GGUFError error = refused_model("unsupported type", b.build());
            EXPECT_EQ(fact(error, "tensor"), t.name);
            EXPECT_NE(fact(error, "expected").find("F32"), std::string::npos);
        }
    }
}

TEST(Census, EachTensorShort) {
    const GgufBuilder whole = tiny_model({.layers = 1});
    const uint64_t total = whole.build().size();
    for (const BuiltTensor& t : whole.tensors) {
        SCOPED_TRACE(t.name);
        GgufBuilder b = whole;
        // Its data would end four bytes after the file does.
        const uint64_t data = b.align(b.header().size());
        const uint64_t bytes = tensor_bytes(t.type, t.dims);
        b.tensor(t.name).offset = b.align(total - data - bytes + 4);
        Buffer file = b.build();
        file.resize(total);
        EXPECT_EQ(fact(refused_model("beyond the end of the file", file), "tensor"), t.name);
    }
}

TEST(Census, StrangersAndFusedTensors) {
    for (const char* name :
         {"rope_freqs.weight", "blk.4.attn_q.weight", "blk.0.attn_q.bias", "blk.00.attn_q.weight",
          "blk.0.attn_q.weight.scale", "blk.", "blk.99999999999.attn_q.weight"}) {
        SCOPED_TRACE(name);
        GgufBuilder b = tiny_model();
        b.tensors.push_back({.name = name, .dims = {32}});
        EXPECT_EQ(fact(refused_model("unknown tensor", b.build()), "tensor"), name);
    }
    GgufBuilder b = tiny_model();
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
        b.remove_tensor(std::string("blk.1.") + part + ".weight");
    }
    b.tensors.push_back({.name = "blk.1.attn_qkv.weight", .dims = {32, 16}});
    const GGUFError error = refused_model("fused QKV", b.build());
    EXPECT_EQ(fact(error, "tensor"), "blk.1.attn_qkv.weight");
}

TEST(Census, QuantisedRowsAreWholeSuperblocks) {
    // 32 columns suit Q8_0's blocks but not the block form of the activations.
    GgufBuilder b = tiny_model();
    b.tensor("blk.0.ffn_gate.weight").type = Q8_0;
    EXPECT_EQ(fact(refused_model("whole superblocks", b.build()), "tensor"),
              "blk.0.ffn_gate.weight");
}

TEST(Census, NormsThatAreNotFinite) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        for (const char* name :
             {"blk.1.post_ffw_norm.weight", "output_norm.weight", "blk.0.attn_k_norm.weight"}) {
            GgufBuilder b = tiny_model();
            b.tensor(name).fill = bad;
            EXPECT_EQ(fact(refused_model("not finite", b.build()), "tensor"), name);
        }
    }
}

TEST(Census, NormsThatNoConverterWritesAreTold) {
    const auto warning = [](auto change) {
        GgufBuilder b = tiny_model();
        change(b);
        const std::vector<std::string> warnings = warnings_of(b);
        EXPECT_EQ(warnings.size(), 1U);
        return warnings.empty() ? std::string() : warnings[0];
    };
    const auto has = [](const std::string& text, const char* part) {
        return text.find(part) != std::string::npos;
    };
    EXPECT_TRUE(has(warning([](auto& b) { b.tensor("blk.2.attn_q_norm.weight").fill = 1.0F; }),
                    "query scale"));
    EXPECT_TRUE(has(warning([](auto& b) { b.tensor("blk.2.attn_k_norm.weight").fill = 3.87F; }),
                    "keys are not scaled"));
    EXPECT_TRUE(has(warning([](auto& b) { b.tensor("blk.1.ffn_norm.weight").fill = 100.0F; }),
                    "blk.1.ffn_norm.weight has mean 100"));
    EXPECT_TRUE(has(warning([](auto& b) { b.tensor("output_norm.weight").fill = 0.0F; }),
                    "output_norm.weight has mean 0"));
    // "+1" once more on every layer norm: all gains above 1.
    EXPECT_TRUE(has(warning([](GgufBuilder& b) {
                        for (BuiltTensor& t : b.tensors) {
                            const bool layer = t.name.starts_with("blk.") && t.dims.size() == 1;
                            if (layer && t.dims[0] == 32) t.fill += 1;
                        }
                    }),
                    "folded in twice"));
    // Not at all: gains around 0, some below.
    GgufBuilder b = tiny_model();
    b.tensor("blk.0.attn_norm.weight").fill = -0.5F;
    bool told = false;
    for (const std::string& w : warnings_of(b)) told = told || has(w, "not have been folded in");
    EXPECT_TRUE(told);
}

TEST(Census, TokenizerKeys) {
    const Buffer file = tiny_model().build();
    const Model m = Model::from_bytes(view(file));
    const model::TokenizerKeys& t = m.tokenizer();
    EXPECT_EQ(t.model, "gpt2");
    EXPECT_EQ(t.pre, "llama4");
    EXPECT_EQ(t.tokens.size(), 12U);
    EXPECT_EQ(*t.tokens.begin(), "token 0");
    EXPECT_EQ(t.merges.size(), 8U);
    EXPECT_EQ(t.token_types.size(), 48U);
    EXPECT_EQ(t.bos, 9U);
    EXPECT_EQ(t.eos, 10U);
    EXPECT_FALSE(t.eot.has_value());
    EXPECT_EQ(t.add_bos, true);
    EXPECT_TRUE(t.chat_template.empty());

    GgufBuilder b = tiny_model();
    b.u32("tokenizer.ggml.eot_token_id", 12);
    refused_model("outside the vocabulary", b.build());
    b = tiny_model();
    b.i32s("tokenizer.ggml.token_type", {1, 1});
    refused_model("one type per token", b.build());
    b = tiny_model();
    b.u32("tokenizer.chat_template", 1);
    refused_model("wrong value type", b.build());
}

TEST(Census, FingerprintRanges) {
    // 3 MiB of table: two ranges; the rest one each.
    const Buffer file = tiny_model({.vocab = 24576}).build();
    const Model m = Model::from_bytes(view(file));
    const std::vector<model::ByteRange> ranges = m.fingerprint_ranges();
    EXPECT_EQ(ranges.size(), 1 + m.weights().size() + 2);
    EXPECT_EQ(ranges[0].offset, 0U);
    EXPECT_EQ(ranges[0].length, m.header().header_bytes());
    EXPECT_EQ(ranges[1].name, "token_embd.weight");
    EXPECT_EQ(ranges[1].length, 1U << 20);
    EXPECT_EQ(ranges[2].offset + ranges[2].length,
              m.token_embd().file_offset + m.token_embd().bytes);
    for (size_t i = 1; i < ranges.size(); ++i) {
        EXPECT_GE(ranges[i].offset, ranges[i - 1].offset + ranges[i - 1].length);
        EXPECT_LE(ranges[i].offset + ranges[i].length, file.size());
    }
}

// The published file: 52 layers, 731 tensors, as a sparse file that holds only its header and
// norms.
TEST(Census, ThePublishedFile) {
    const GgufBuilder b = real_model();
    const Buffer header = b.header();
    uint64_t end = 0;
    const std::vector<uint64_t> offsets = b.offsets(end);
    const uint64_t data = b.align(header.size());
    const TemporaryFile file(header);
    file.truncate(data + end);
    for (size_t i = 0; i < b.tensors.size(); ++i) {
        const BuiltTensor& t = b.tensors[i];
        if (t.type != F32) continue;
        const std::vector<float> values(t.dims[0], t.fill);
        file.write(data + offsets[i], values.data(), 4 * values.size());
    }

    const Model m = Model::open(file.path());
    const model::Census& census = m.census();
    EXPECT_EQ(census.tensors, 731U);
    EXPECT_EQ(census.weight_bytes, 16743567360U);
    ASSERT_EQ(census.types.size(), 4U);
    const struct {
        TensorType type;
        uint64_t tensors;
    } expected[] = {{TensorType::F32, 313},
                    {TensorType::Q4_K, 365},
                    {TensorType::Q5_K, 1},
                    {TensorType::Q6_K, 52}};
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(census.types[i].type, expected[i].type);
        EXPECT_EQ(census.types[i].tensors, expected[i].tensors);
    }
    // All but the embedding table (756,467,712 bytes), and one row of it.
    EXPECT_EQ(census.bytes_per_token, 16743567360U - 756467712U + 3744U);
    EXPECT_EQ(m.geometry().local_layers(), 39U);
    EXPECT_EQ(m.geometry().global_layers(), 13U);
    EXPECT_TRUE(m.warnings().empty());
    EXPECT_GT(m.output().file_offset, uint64_t{1} << 32);

    // One byte less, and the last tensor is said to be short.
    file.truncate(data + end - 1);
    const GGUFError error =
        refusal("beyond the end of the file", [&] { Model::open(file.path()); });
    EXPECT_EQ(fact(error, "tensor"), "output.weight");
}

}  // namespace
}  // namespace muser::test
