// A bounded reader for the header of a GGUF file: metadata and tensor table, nothing else.
//
// The bytes are the whole file (usually a mapping). Nothing is copied: keys, names, strings and
// arrays are views into those bytes, which must outlive the Header. Every bound is checked by
// subtraction from the bytes that remain, so no sum can wrap; every count is capped by what the
// remaining bytes could hold. Any failure is a GGUFError with the facts offset, key or tensor,
// found, expected. No assertion stands in for a check.
//
// Version 3 only. Version 1 has another layout, version 2 the same one, but both were retired
// years before the first file of this model was written, so a file that claims them is damaged
// or not this model. A byte-swapped version says "big-endian", which is refused too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"
#include "model/ggml_types.h"

namespace muser::model {

using Bytes = std::span<const std::byte>;

enum class ValueType : uint32_t {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
};
std::string value_type_name(uint32_t id);

// The strings of a string array, walked in order. The lengths were checked when the header was
// read, so walking cannot leave the bytes. (Offsets are found on the way: an array of 440,000
// merges costs no memory.)
class StringArray {
  public:
    class Iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = std::string_view;
        using difference_type = std::ptrdiff_t;
        using pointer = const std::string_view*;
        using reference = std::string_view;

        Iterator() = default;
        Iterator(const std::byte* at, uint64_t left) : at_(at), left_(left) {}
        std::string_view operator*() const noexcept;
        Iterator& operator++() noexcept;
        Iterator operator++(int) noexcept {
            Iterator old = *this;
            ++*this;
            return old;
        }
        bool operator==(const Iterator& other) const noexcept { return left_ == other.left_; }

      private:
        const std::byte* at_ = nullptr;
        uint64_t left_ = 0;
    };

    StringArray() = default;
    StringArray(Bytes bytes, uint64_t count) : bytes_(bytes), count_(count) {}
    uint64_t size() const noexcept { return count_; }
    bool empty() const noexcept { return count_ == 0; }
    Iterator begin() const noexcept { return {bytes_.data(), count_}; }
    Iterator end() const noexcept { return {nullptr, 0}; }
    // The encoded array (u64 length, bytes, u64 length, ...), for a reader in another language.
    Bytes bytes() const noexcept { return bytes_; }

  private:
    Bytes bytes_;
    uint64_t count_ = 0;
};

struct Entry {
    std::string_view key;
    uint64_t offset;    // file offset of the value (after its type)
    ValueType type;     // Array for an array
    ValueType element;  // element type of an array; equals type for a scalar
    uint64_t count;     // elements of an array; 1 for a scalar
    Bytes bytes;        // the value: scalar, string without its length, or array elements
};

struct TensorInfo {
    std::string_view name;
    uint64_t info_offset;          // where its entry stands in the file
    uint32_t n_dims;               // 1 ... 4
    std::array<uint64_t, 4> dims;  // ggml order, fastest first; 1 beyond n_dims; never 0
    TensorType type;               // an id that ggml defines, not always one we can run
    uint64_t file_offset;          // absolute
    uint64_t bytes;                // lies wholly inside the file
};

std::string shape_text(const TensorInfo& tensor);  // "(6656, 4096)"

class Header {
  public:
    static constexpr uint64_t max_entries = 65536;    // real files: 32
    static constexpr uint64_t max_tensors = 65536;    // real files: 731
    static constexpr uint64_t max_key_bytes = 65535;  // the format's own limit
    static constexpr uint64_t max_name_bytes = 63;    // ggml's limit
    static constexpr uint32_t default_alignment = 32;
    static constexpr uint32_t min_alignment = 8;      // the format: a multiple of 8
    static constexpr uint32_t max_alignment = 65536;  // the largest page size in use

    // Reads and checks everything. Throws GGUFError.
    static Header parse(Bytes file);

    uint32_t version() const noexcept { return version_; }
    uint32_t alignment() const noexcept { return alignment_; }
    uint64_t header_bytes() const noexcept { return header_bytes_; }  // up to the padding
    uint64_t data_offset() const noexcept { return data_offset_; }    // where tensor data begins
    uint64_t file_bytes() const noexcept { return file_bytes_; }

    // In file order. Deques, because a vector that grows by doubling would make one allocation
    // larger than a small hostile file.
    const std::deque<Entry>& entries() const noexcept { return entries_; }
    const std::deque<TensorInfo>& tensors() const noexcept { return tensors_; }

    // nullptr where absent. Binary search.
    const Entry* find(std::string_view key) const noexcept;
    const TensorInfo* find_tensor(std::string_view name) const noexcept;

    // Typed values: GGUFError when the key is absent or its type is another one. The type must
    // match exactly; a count stored as a float or a signed number is a damaged file.
    const Entry& require(std::string_view key, ValueType type) const;
    uint32_t u32(std::string_view key) const;
    float f32(std::string_view key) const;
    bool boolean(std::string_view key) const;
    std::string_view string(std::string_view key) const;
    StringArray strings(std::string_view key) const;
    // Elements of a fixed-size array as stored (little-endian, not aligned): checks the type.
    const Entry& array(std::string_view key, ValueType element) const;

  private:
    friend class HeaderParser;
    Header() = default;

    uint32_t version_ = 0;
    uint32_t alignment_ = default_alignment;
    uint64_t header_bytes_ = 0;
    uint64_t data_offset_ = 0;
    uint64_t file_bytes_ = 0;
    std::deque<Entry> entries_;
    std::deque<TensorInfo> tensors_;
    std::vector<uint32_t> by_key_;   // entries_ sorted by key
    std::vector<uint32_t> by_name_;  // tensors_ sorted by name
};

// Text from a file made safe for messages and for Python: printable ASCII, the rest as \xNN, cut
// after `limit` bytes.
std::string printable(std::string_view text, size_t limit = 96);

}  // namespace muser::model
