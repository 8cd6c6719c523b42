// Writes GGUF files byte by byte for tests, well-formed or not. Independent of the reader: it
// shares no code with it, and every field can be set to what no writer would write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muser::test {

using Buffer = std::vector<std::byte>;  // operator new aligns it to 16

// Little-endian encoding by hand.
class Encoder {
  public:
    Encoder& u8(uint8_t v) { return integer(v, 1); }
    Encoder& u16(uint16_t v) { return integer(v, 2); }
    Encoder& u32(uint32_t v) { return integer(v, 4); }
    Encoder& u64(uint64_t v) { return integer(v, 8); }
    Encoder& f32(float v);
    Encoder& raw(std::string_view v);
    Encoder& text(std::string_view v) { return u64(v.size()).raw(v); }
    Encoder& zeros(uint64_t n);
    Buffer bytes;

  private:
    Encoder& integer(uint64_t v, int n);
};

// GGUF value type ids.
inline constexpr uint32_t u8_id = 0, i8_id = 1, u16_id = 2, i16_id = 3, u32_id = 4, i32_id = 5,
                          f32_id = 6, bool_id = 7, string_id = 8, array_id = 9, u64_id = 10,
                          i64_id = 11, f64_id = 12;
// ggml type ids and block sizes used by tests.
inline constexpr uint32_t F32 = 0, F16 = 1, Q4_0 = 2, Q8_0 = 8, Q3_K = 11, Q4_K = 12, Q5_K = 13,
                          Q6_K = 14, I8 = 24, BF16 = 30;
uint64_t tensor_bytes(uint32_t type, const std::vector<uint64_t>& dims);

struct BuiltTensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type = F32;
    float fill = 0;                    // F32 only; other types hold zeros
    std::optional<uint32_t> n_dims{};  // else dims.size()
    std::optional<uint64_t> offset{};  // else placed after the one before
    std::optional<uint64_t> bytes{};   // else tensor_bytes()
};

class GgufBuilder {
  public:
    std::string magic = "GGUF";
    uint32_t version = 3;
    std::optional<uint64_t> tensor_count;
    std::optional<uint64_t> key_count;
    uint64_t alignment = 32;  // of the layout; a key says so only where a test adds it
    std::vector<std::pair<std::string, Buffer>> entries;  // key, type id and value
    std::vector<BuiltTensor> tensors;

    void u32(const std::string& key, uint32_t v) { set(key, Encoder().u32(u32_id).u32(v)); }
    void f32(const std::string& key, float v) { set(key, Encoder().u32(f32_id).f32(v)); }
    void boolean(const std::string& key, uint8_t v) { set(key, Encoder().u32(bool_id).u8(v)); }
    void string(const std::string& key, std::string_view v) {
        set(key, Encoder().u32(string_id).text(v));
    }
    void strings(const std::string& key, const std::vector<std::string>& v);
    void bools(const std::string& key, const std::vector<uint8_t>& v);
    void i32s(const std::string& key, const std::vector<int32_t>& v);
    // Replaces a key's value or appends the key.
    void set(const std::string& key, const Encoder& value);
    void append(const std::string& key, const Encoder& value) {
        entries.emplace_back(key, value.bytes);
    }
    void remove(const std::string& key);
    BuiltTensor& tensor(const std::string& name);
    void remove_tensor(const std::string& name);

    Buffer header() const;  // up to the padding
    Buffer build() const;   // with data
    // Where each tensor's data goes, relative to the data's begin, and the end of the last.
    std::vector<uint64_t> offsets(uint64_t& end) const;
    uint64_t align(uint64_t n) const { return (n + alignment - 1) / alignment * alignment; }
};

// A small model that must load. `pattern_period` 0 writes one bool per layer, else the scalar.
struct TinyModel {
    std::string architecture = "muse-glimmer";
    uint32_t layers = 4, hidden = 32, ff = 64, heads = 2, kv_heads = 1, head_dim = 4, vocab = 12,
             window = 16, context = 256;
    uint32_t pattern_period = 0;
    uint32_t matrix_type = F32;
};
GgufBuilder tiny_model(const TinyModel& shape = {});
// Quantised: every width a multiple of 256, every supported type somewhere.
GgufBuilder tiny_mixed_model();
// The published shape and census; tokens and merges as many as the real file has.
GgufBuilder real_model();

// A file of its own name in the temporary folder, gone with the object.
class TemporaryFile {
  public:
    explicit TemporaryFile(const Buffer& content);
    ~TemporaryFile();
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    const std::string& path() const { return path_; }
    void truncate(uint64_t size) const;
    void write(uint64_t offset, const void* data, size_t size) const;

  private:
    std::string path_;
};

}  // namespace muser::test
