// Well-formed headers: what is read is what was written, and how fast.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "expect_refusal.h"
#include "gguf_builder.h"
#include "model/gguf_header.h"

namespace muser::test {
namespace {

using model::Header;
using model::ValueType;

TEST(Header, NoKeysNoTensors) {
    const Buffer file = GgufBuilder().build();
    const Header header = Header::parse(view(file));
    EXPECT_EQ(header.version(), 3U);
    EXPECT_EQ(header.alignment(), 32U);
    EXPECT_EQ(header.header_bytes(), 24U);
    EXPECT_TRUE(header.entries().empty());
    EXPECT_TRUE(header.tensors().empty());
}

TEST(Header, EveryValueType) {
    GgufBuilder b;
    b.set("u8", Encoder().u32(u8_id).u8(200));
    b.set("i8", Encoder().u32(i8_id).u8(0x80));
    b.set("u16", Encoder().u32(u16_id).u16(65535));
    b.set("i16", Encoder().u32(i16_id).u16(1));
    b.u32("u32", 4000000000U);
    b.set("i32", Encoder().u32(i32_id).u32(7));
    b.f32("f32", 0.5F);
    b.boolean("bool", 1);
    b.string("string", "words");
    b.string("empty", "");
    b.set("u64", Encoder().u32(u64_id).u64(1ULL << 60));
    b.set("i64", Encoder().u32(i64_id).u64(2));
    b.set("f64", Encoder().u32(f64_id).u64(0));
    b.strings("strings", {"a", "", "ccc"});
    b.i32s("numbers", {1, -2, 3});
    b.bools("flags", {1, 0});
    b.set("none", Encoder().u32(array_id).u32(u64_id).u64(0));
    const Buffer file = b.build();
    const Header header = Header::parse(view(file));

    ASSERT_EQ(header.entries().size(), b.entries.size());
    EXPECT_EQ(header.entries()[0].key, "u8");
    EXPECT_EQ(header.u32("u32"), 4000000000U);
    EXPECT_EQ(header.f32("f32"), 0.5F);
    EXPECT_TRUE(header.boolean("bool"));
    EXPECT_EQ(header.string("string"), "words");
    EXPECT_EQ(header.string("empty"), "");
    EXPECT_EQ(header.find("absent"), nullptr);
    const model::StringArray strings = header.strings("strings");
    const std::vector<std::string> walked(strings.begin(), strings.end());
    EXPECT_EQ(walked, (std::vector<std::string>{"a", "", "ccc"}));
    EXPECT_EQ(strings.bytes().size(), 3 * 8 + 4U);
    const model::Entry& numbers = header.array("numbers", ValueType::I32);
    EXPECT_EQ(numbers.count, 3U);
    int32_t second = 0;
    std::memcpy(&second, numbers.bytes.data() + 4, 4);
    EXPECT_EQ(second, -2);
    EXPECT_EQ(header.array("none", ValueType::U64).count, 0U);
    // Views, not copies.
    EXPECT_GE(numbers.bytes.data(), file.data());
    EXPECT_LE(numbers.bytes.data() + numbers.bytes.size(), file.data() + file.size());
}

TEST(Header, GettersRefuseAnotherType) {
    GgufBuilder b;
    b.u32("count", 1);
    b.i32s("array", {1});
    const Buffer file = b.build();
    const Header header = Header::parse(view(file));
    const GGUFError error = refusal("wrong value type", [&] { (void)header.f32("count"); });
    EXPECT_EQ(fact(error, "key"), "count");
    EXPECT_EQ(fact(error, "found"), "uint32");
    EXPECT_EQ(fact(error, "expected"), "float32");
    EXPECT_NE(fact(error, "offset"), "");
    refusal("missing key", [&] { (void)header.u32("absent"); });
    refusal("wrong value type", [&] { (void)header.strings("count"); });
    refusal("wrong element type", [&] { (void)header.strings("array"); });
}

TEST(Header, TensorTable) {
    GgufBuilder b;
    b.tensors.push_back({.name = "a", .dims = {3}});
    b.tensors.push_back({.name = "b", .dims = {256, 2}, .type = Q6_K});
    b.tensors.push_back({.name = "c", .dims = {32, 1, 2, 3}, .type = Q8_0});
    const Buffer file = b.build();
    const Header header = Header::parse(view(file));
    ASSERT_EQ(header.tensors().size(), 3U);
    EXPECT_EQ(header.data_offset() % 32, 0U);
    EXPECT_GE(header.data_offset(), header.header_bytes());
    EXPECT_EQ(header.find_tensor("a")->bytes, 12U);
    EXPECT_EQ(header.find_tensor("a")->file_offset, header.data_offset());
    EXPECT_EQ(header.find_tensor("b")->bytes, 420U);
    EXPECT_EQ(header.find_tensor("b")->file_offset, header.data_offset() + 32);
    EXPECT_EQ(header.find_tensor("c")->bytes, 34U * 6);
    EXPECT_EQ(header.find_tensor("c")->dims[3], 3U);
    EXPECT_EQ(header.find_tensor("d"), nullptr);
}

TEST(Header, StatedAlignment) {
    for (const uint32_t alignment : {8U, 64U, 65536U}) {
        GgufBuilder b;
        b.alignment = alignment;
        b.u32("general.alignment", alignment);
        b.tensors.push_back({.name = "a", .dims = {3}});
        b.tensors.push_back({.name = "b", .dims = {5}});
        const Buffer file = b.build();
        const Header header = Header::parse(view(file));
        EXPECT_EQ(header.alignment(), alignment);
        EXPECT_EQ(header.find_tensor("b")->file_offset % alignment, 0U);
    }
}

TEST(Header, PrintableText) {
    EXPECT_EQ(model::printable("plain"), "plain");
    EXPECT_EQ(model::printable(std::string_view("\n\0\xff", 3)), "\\x0a\\x00\\xff");
    EXPECT_EQ(model::printable(std::string(200, 'x'), 4), "xxxx...");
}

// The limit is the acceptance figure; a reader that builds a string per token misses it widely.
TEST(Header, RealVocabularyIsQuick) {
    GgufBuilder b;
    std::vector<std::string> tokens;
    std::vector<std::string> merges;
    for (int i = 0; i < 202048; ++i) tokens.push_back("tok" + std::to_string(i));
    for (int i = 0; i < 440000; ++i) merges.push_back("mer ge" + std::to_string(i));
    b.strings("tokenizer.ggml.tokens", tokens);
    b.strings("tokenizer.ggml.merges", merges);
    b.i32s("tokenizer.ggml.token_type", std::vector<int32_t>(tokens.size(), 1));
    const Buffer file = b.build();

    const auto start = std::chrono::steady_clock::now();
    const Header header = Header::parse(view(file));
    const auto parsed = std::chrono::steady_clock::now();
    size_t i = 0;
    bool same = true;
    for (const std::string_view token : header.strings("tokenizer.ggml.tokens")) {
        same = same && token == tokens[i++];
    }
    for (const std::string_view merge : header.strings("tokenizer.ggml.merges")) {
        same = same && merge == merges[i++ - tokens.size()];
    }
    EXPECT_TRUE(same);
    EXPECT_EQ(i, tokens.size() + merges.size());
    const double seconds = std::chrono::duration<double>(parsed - start).count();
    EXPECT_LT(seconds, 0.5);
    RecordProperty("parse_ms", std::to_string(1e3 * seconds));
}

}  // namespace
}  // namespace muser::test
