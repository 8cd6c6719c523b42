// Malformed files, each a few bytes away from one that loads. The kinds are those that have
// broken other readers (wrapping products and sums, impossible counts and lengths, zero divisors,
// asserts that release builds drop, duplicates, short files), and the hand-made kinds of the
// format's own test-suite.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "expect_refusal.h"
#include "gguf_builder.h"
#include "model/gguf_header.h"

namespace muser::test {
namespace {

constexpr uint64_t max64 = std::numeric_limits<uint64_t>::max();

// Two keys and two tensors, as every case starts out.
GgufBuilder base() {
    GgufBuilder b;
    b.string("general.name", "test");
    b.u32("count", 5);
    b.tensors.push_back({.name = "first", .dims = {8, 4}});
    b.tensors.push_back({.name = "second", .dims = {256}, .type = I8});
    return b;
}

struct Kind {
    const char* name;
    const char* says;
    std::function<Buffer()> make;
};

template <typename Change>
std::function<Buffer()> with(Change change) {
    return [change] {
        GgufBuilder b = base();
        change(b);
        return b.build();
    };
}

std::function<Buffer()> bytes(Encoder e) {
    return [e] { return e.bytes; };
}

Encoder start(uint64_t tensors, uint64_t keys) {
    return Encoder().raw("GGUF").u32(3).u64(tensors).u64(keys);
}

BuiltTensor huge(const char* name, std::vector<uint64_t> dims, uint32_t type) {
    // Writes no data: the claim is all there is.
    return {.name = name, .dims = std::move(dims), .type = type, .bytes = 0};
}

const Kind kinds[] = {
    // Magic, version, counts.
    {"empty file", "ends inside the header", bytes(Encoder())},
    {"three bytes", "ends inside the header", bytes(Encoder().raw("GGU"))},
    {"bad magic", "not a GGUF file", with([](auto& b) { b.magic = "FGGU"; })},
    {"version 0", "unsupported GGUF version", with([](auto& b) { b.version = 0; })},
    {"version 1", "unsupported GGUF version", with([](auto& b) { b.version = 1; })},
    {"version 2", "unsupported GGUF version", with([](auto& b) { b.version = 2; })},
    {"version future", "unsupported GGUF version", with([](auto& b) { b.version = 4; })},
    {"version big-endian", "big-endian", with([](auto& b) { b.version = 0x03000000; })},
    {"v1 with an empty string", "unsupported GGUF version",
     bytes(Encoder().raw("GGUF").u32(1).u32(0).u32(1).u32(1).raw("k").u32(string_id).u32(0))},
    {"tensor count -1", "impossible tensor count", with([](auto& b) { b.tensor_count = max64; })},
    {"tensor count past the bytes", "impossible tensor count", bytes(start(1, 0))},
    {"tensor count past the bytes after the keys", "impossible tensor count",
     with([](auto& b) { b.tensor_count = 16; })},
    {"one tensor too many", "impossible tensor count", [] {
         GgufBuilder b = base();
         b.tensor_count = 3;
         return b.header();
     }},
    {"key count -1", "impossible metadata count", with([](auto& b) { b.key_count = max64; })},
    {"key count past the bytes", "impossible metadata count", bytes(start(0, 1))},
    {"key count too high", "", with([](auto& b) { b.key_count = 3; })},

    // Keys.
    {"empty key", "impossible key length", bytes(start(0, 1).u64(0).u32(u8_id).u64(0))},
    {"key length 2^48 in a small file", "impossible key length",
     bytes(start(0, 1).u64(0xFFFFFFFFFFFF).zeros(16))},
    {"key length 2^63", "impossible key length", bytes(start(0, 1).u64(1ULL << 63).zeros(16))},
    {"key longer than the file", "ends inside the header",
     bytes(start(0, 1).u64(1000).zeros(16))},
    {"key with a NUL", "NUL byte", with([](auto& b) { b.u32(std::string("a\0b", 3), 1); })},
    {"duplicate key", "duplicate key",
     with([](auto& b) { b.append("count", Encoder().u32(u32_id).u32(5)); })},

    // Values.
    {"value type 13", "unknown value type",
     with([](auto& b) { b.set("x", Encoder().u32(13).u64(0)); })},
    {"value type 2^32-1", "unknown value type",
     with([](auto& b) { b.set("x", Encoder().u32(0xFFFFFFFF).u64(0)); })},
    {"element type 13", "unknown value type",
     with([](auto& b) { b.set("x", Encoder().u32(array_id).u32(13).u64(0)); })},
    {"string length 2^63", "ends inside the header",
     with([](auto& b) { b.set("x", Encoder().u32(string_id).u64(1ULL << 63)); })},
    {"string length -1", "ends inside the header",
     with([](auto& b) { b.set("x", Encoder().u32(string_id).u64(max64)); })},
    {"array count -1", "impossible value",
     with([](auto& b) { b.set("x", Encoder().u32(array_id).u32(u32_id).u64(max64)); })},
    {"array count times size wraps", "impossible value",
     with([](auto& b) { b.set("x", Encoder().u32(array_id).u32(u64_id).u64((1ULL << 61) + 1)); })},
    {"array count 2^30 in a small file", "impossible value",
     with([](auto& b) { b.set("x", Encoder().u32(array_id).u32(u8_id).u64(1ULL << 30)); })},
    {"string array count 2^30", "impossible array count",
     with([](auto& b) { b.set("x", Encoder().u32(array_id).u32(string_id).u64(1ULL << 30)); })},
    {"string array count -1", "impossible array count",
     with([](auto& b) { b.set("x", Encoder().u32(array_id).u32(string_id).u64(max64)); })},
    {"string in an array past the end", "ends inside the header", with([](auto& b) {
         b.set("x", Encoder().u32(array_id).u32(string_id).u64(2).text("a").u64(1ULL << 40));
     })},
    {"array of arrays", "array of arrays",
     with([](auto& b) { b.set("x", Encoder().u32(array_id).u32(array_id).u64(1).zeros(20)); })},
    {"bool 2", "bool out of range", with([](auto& b) { b.boolean("x", 2); })},
    {"bool 255 in an array", "bool out of range", with([](auto& b) { b.bools("x", {0, 255}); })},
    {"value cut off", "impossible value", bytes(start(0, 1).text("key").u32(u64_id).u32(1))},

    // Alignment.
    {"alignment 0", "impossible alignment",
     with([](auto& b) { b.u32("general.alignment", 0); })},
    {"alignment 13", "impossible alignment",
     with([](auto& b) { b.u32("general.alignment", 13); })},
    {"alignment 4", "impossible alignment", with([](auto& b) { b.u32("general.alignment", 4); })},
    {"alignment 2^30", "impossible alignment",
     with([](auto& b) { b.u32("general.alignment", 1U << 30); })},
    {"alignment as int32", "wrong value type",
     with([](auto& b) { b.set("general.alignment", Encoder().u32(i32_id).u32(32)); })},
    {"alignment as text", "wrong value type",
     with([](auto& b) { b.string("general.alignment", "32"); })},
    {"alignment stated, not kept", "out of alignment",
     with([](auto& b) {
         b.u32("general.alignment", 64);
         b.tensor("first").offset = 32;
     })},

    // Tensor names and shapes.
    {"empty tensor name", "impossible tensor name length",
     with([](auto& b) { b.tensor("first").name = ""; })},
    {"tensor name of 64", "impossible tensor name length",
     with([](auto& b) { b.tensor("first").name = std::string(64, 'n'); })},
    {"tensor name length -1", "impossible tensor name length",
     bytes(start(1, 0).u64(max64).zeros(40))},
    {"tensor name with a NUL", "NUL byte",
     with([](auto& b) { b.tensor("first").name = std::string("f\0", 2); })},
    {"duplicate tensor", "duplicate tensor",
     with([](auto& b) { b.tensor("second").name = "first"; })},
    {"no dimensions", "impossible dimension count",
     with([](auto& b) { b.tensor("first").n_dims = 0; })},
    {"5 dimensions", "impossible dimension count",
     with([](auto& b) { b.tensor("first").n_dims = 5; })},
    {"9 dimensions", "impossible dimension count",
     with([](auto& b) { b.tensor("first").n_dims = 9; })},
    {"10^6 dimensions", "impossible dimension count",
     with([](auto& b) { b.tensor("first").n_dims = 1000000; })},
    {"2^32-1 dimensions", "impossible dimension count",
     with([](auto& b) { b.tensor("first").n_dims = 0xFFFFFFFF; })},
    {"first dimension 0", "empty tensor", with([](auto& b) { b.tensor("first").dims = {0, 4}; })},
    {"second dimension 0", "empty tensor",
     with([](auto& b) { b.tensor("first").dims = {8, 0}; })},
    {"fourth dimension 0", "empty tensor",
     with([](auto& b) { b.tensor("first").dims = {8, 1, 1, 0}; })},
    {"dimension 2^42+1: the stride product wraps", "larger than the file",
     with([](auto& b) { b.tensors[1] = huge("big", {(1ULL << 42) + 1, 1ULL << 22}, F32); })},
    {"dimensions (2^63-1, 2): the element product is negative", "larger than the file",
     with([](auto& b) { b.tensors[1] = huge("big", {(1ULL << 63) - 1, 2, 1, 1}, I8); })},
    {"dimension 2^62+8: four bytes each wrap to 32", "larger than the file",
     with([](auto& b) { b.tensors[1] = huge("big", {(1ULL << 62) + 8}, F32); })},
    {"dimensions (8, 2^61+1): the product wraps to 32 bytes", "larger than the file",
     with([](auto& b) { b.tensors[1] = huge("big", {8, (1ULL << 61) + 1}, F32); })},
    {"dimension -1", "larger than the file",
     with([](auto& b) { b.tensors[1] = huge("big", {max64}, I8); })},
    {"four dimensions whose product is 0 modulo 2^64", "larger than the file", with([](auto& b) {
         b.tensors[1] = huge("big", {1ULL << 32, 1ULL << 16, 1ULL << 16, 1}, I8);
     })},
    {"two tensors whose padded sizes wrap when summed", "larger than the file", with([](auto& b) {
         b.tensors[0] = huge("a", {0x7FFFFFFFFFFFFFC0}, I8);
         b.tensors[1] = huge("b", {0x7FFFFFFFFFFFFFC0}, I8);
     })},
    {"row that is not whole blocks", "not whole blocks",
     with([](auto& b) { b.tensors[1] = huge("big", {255, 2}, Q4_K); })},
    {"tensor type 4, withdrawn", "unknown tensor type",
     with([](auto& b) { b.tensors[1] = huge("big", {32}, 4); })},
    {"tensor type 200", "unknown tensor type",
     with([](auto& b) { b.tensors[1] = huge("big", {32}, 200); })},
    {"tensor type 2^32-1", "unknown tensor type",
     with([](auto& b) { b.tensors[1] = huge("big", {32}, 0xFFFFFFFF); })},

    // Data.
    {"offset out of alignment", "out of alignment",
     with([](auto& b) { b.tensor("second").offset = 129; })},
    {"offset past the end", "beyond the end of the file",
     with([](auto& b) { b.tensor("second").offset = 1ULL << 40; })},
    {"offset plus size wraps", "beyond the end of the file",
     with([](auto& b) { b.tensor("second").offset = max64 - 31; })},
    {"two tensors in one place", "overlapping tensors",
     with([](auto& b) { b.tensor("second").dims = {32}, b.tensor("second").offset = 0; })},
    {"tensors that overlap in part", "overlapping tensors",
     with([](auto& b) { b.tensor("second").dims = {32}, b.tensor("second").offset = 96; })},
    {"no data at all", "ends before its tensor data", [] {
         GgufBuilder b = base();  // ends one byte into an alignment unit: padding is due
         std::string text(1000, 'x');
         do {
             b.string("text", text += 'x');
         } while (b.header().size() % 32 != 1);
         return b.header();
     }},
    {"data one byte short", "beyond the end of the file", [] {
         Buffer file = base().build();
         file.pop_back();
         return file;
     }},
};

TEST(Malformed, TheUnchangedFileIsAccepted) {
    const Buffer file = base().build();
    EXPECT_EQ(model::Header::parse(view(file)).tensors().size(), 2U);
}

TEST(Malformed, EveryKindIsRefused) {
    for (const Kind& kind : kinds) {
        SCOPED_TRACE(kind.name);
        const GGUFError error = refused_header(kind.says, kind.make());
        EXPECT_STREQ(error.kind(), "GGUFError");
        EXPECT_NE(fact(error, "offset"), "") << error.what();
    }
}

// The checks are not so strict that they refuse the largest legal neighbour of each kind.
TEST(Malformed, LegalNeighboursAreAccepted) {
    const auto accepted = [](const std::function<Buffer()>& make) {
        const Buffer file = make();
        EXPECT_NO_THROW(model::Header::parse(view(file)));
    };
    accepted(with([](auto& b) { b.tensor("first").name = std::string(63, 'n'); }));
    accepted(with([](auto& b) { b.tensor("first").dims = {2, 2, 2, 4}; }));
    accepted(with([](auto& b) { b.tensor("first").dims = {1}; }));
    accepted(with([](auto& b) { b.u32(std::string(65535, 'k'), 1); }));
    accepted(with([](auto& b) { b.string("x", std::string(100000, 'v')); }));
    accepted(with([](auto& b) { b.tensors[1] = {.name = "q", .dims = {256, 3}, .type = Q3_K}; }));
    accepted([] {  // table order is not data order
        GgufBuilder b = base();
        b.tensor("first").offset = 256;
        b.tensor("second").offset = 0;
        Buffer file = b.build();
        file.resize(file.size() + 256 + 128);
        return file;
    });
    accepted([] {  // bytes after the last tensor are nobody's
        Buffer file = base().build();
        file.resize(file.size() + 100);
        return file;
    });
}

// Cut at every byte: inside the header, inside the padding, inside the data.
TEST(Malformed, TruncatedAtEveryByte) {
    const Buffer whole = base().build();
    for (size_t size = 0; size < whole.size(); ++size) {
        SCOPED_TRACE(size);
        // A copy of exactly that size, so that a sanitizer sees the first byte beyond.
        const Buffer cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
        refused_header("", cut);
    }
}

TEST(Malformed, TheModelTruncatedAtEveryByteOfItsHeader) {
    const GgufBuilder b = tiny_model({.layers = 1, .vocab = 6});
    const Buffer whole = b.build();
    const size_t header = b.header().size();
    for (size_t size = 0; size <= header + 64; ++size) {
        SCOPED_TRACE(size);
        const Buffer cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
        refused_model("", cut);
    }
    EXPECT_NO_THROW(model::Model::from_bytes(view(whole)));
}

// Text from the file reaches messages only in printable form.
TEST(Malformed, MessagesArePrintable) {
    GgufBuilder b = base();
    b.append("bad\xff\n", Encoder().u32(77));
    const GGUFError error = refused_header("bad\\xff\\x0a", b.build());
    for (const char* c = error.what(); *c != 0; ++c) EXPECT_TRUE(*c >= 0x20 && *c < 0x7f);
}

}  // namespace
}  // namespace muser::test
