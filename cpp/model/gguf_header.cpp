#include "model/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>

#include "model/refuse.h"
#include "model/words.h"

namespace muser::model {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

namespace {

constexpr std::array<const char*, 13> value_type_names{
    "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
    "bool",  "string", "array",  "uint64", "int64",  "float64"};
// Bytes of one value; 0 for the two types whose size is in the file.
constexpr std::array<uint32_t, 13> value_sizes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// The smallest entry: key length, one byte of key, type, one byte of value.
constexpr uint64_t min_entry_bytes = 8 + 1 + 4 + 1;
// The smallest tensor: name length, one byte of name, dimension count, one dimension, type, offset.
constexpr uint64_t min_tensor_bytes = 8 + 1 + 4 + 8 + 4 + 8;

template <typename T>
T load(const std::byte* at) noexcept {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

std::string_view text(Bytes bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string at_most(uint64_t limit) { return words("at most ", limit); }

}  // namespace

std::string value_type_name(uint32_t id) {
    return id < value_type_names.size() ? value_type_names[id] : words("value type ", id);
}

std::string printable(std::string_view raw, size_t limit) {
    static constexpr char hex[] = "0123456789abcdef";
    std::string out;
    for (const char c : raw.substr(0, limit)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte < 0x7f) {
            out += c;
        } else {
            out += "\\x";
            out += hex[byte >> 4];
            out += hex[byte & 15];
        }
    }
    if (raw.size() > limit) out += "...";
    return out;
}

std::string shape_text(const TensorInfo& tensor) {
    std::string out = "(";
    for (uint32_t i = 0; i < tensor.n_dims; ++i) {
        if (i != 0) out += ", ";
        out += std::to_string(tensor.dims[i]);
    }
    out += ")";
    return out;
}

std::string_view StringArray::Iterator::operator*() const noexcept {
    return {reinterpret_cast<const char*>(at_ + 8), static_cast<size_t>(load<uint64_t>(at_))};
}

StringArray::Iterator& StringArray::Iterator::operator++() noexcept {
    at_ += 8 + load<uint64_t>(at_);
    --left_;
    return *this;
}

// Reads front to back. `at_` never exceeds the file, so `left()` never wraps; a length from the
// file is only ever compared with what is left, never added to anything first.
class HeaderParser {
  public:
    explicit HeaderParser(Bytes file) : file_(file) { header_.file_bytes_ = file.size(); }

    Header run() {
        magic_and_version();
        const uint64_t tensors_at = at_;
        const auto tensors = number<uint64_t>("tensor count");
        const uint64_t entries_at = at_;
        const auto entries = number<uint64_t>("metadata count");
        check_count("tensor count", tensors, Header::max_tensors, min_tensor_bytes, tensors_at);
        check_count("metadata count", entries, Header::max_entries, min_entry_bytes, entries_at);
        for (uint64_t i = 0; i < entries; ++i) read_entry();
        index_entries();
        read_alignment();
        // Again: the metadata has taken its share of the bytes.
        check_count("tensor count", tensors, Header::max_tensors, min_tensor_bytes, tensors_at);
        for (uint64_t i = 0; i < tensors; ++i) read_tensor();
        index_tensors();
        place_data();
        return std::move(header_);
    }

  private:
    uint64_t left() const noexcept { return file_.size() - at_; }

    Bytes take(uint64_t count, std::string_view what) {
        if (count > left()) {
            refuse("the file ends inside the header", {.key = key_, .tensor = name_, .offset = at_},
                   words(left(), " bytes left"), words(count, " bytes of ", what));
        }
        const Bytes bytes = file_.subspan(at_, count);
        at_ += count;
        return bytes;
    }

    template <typename T>
    T number(std::string_view what) {
        return load<T>(take(sizeof(T), what).data());
    }

    void check_count(std::string_view what, uint64_t count, uint64_t limit, uint64_t smallest,
                     uint64_t offset) const {
        if (count > limit) {
            refuse(words("impossible ", what), {.offset = offset}, std::to_string(count),
                   at_most(limit));
        }
        if (count > left() / smallest) {
            refuse(words("impossible ", what), {.offset = offset}, std::to_string(count),
                   words(at_most(left() / smallest), " in the ", left(), " bytes left"));
        }
    }

    void magic_and_version() {
        const Bytes magic = take(4, "magic");
        if (text(magic) != "GGUF") {
            refuse("not a GGUF file", {.offset = 0}, words("\"", printable(text(magic)), "\""),
                   "\"GGUF\"");
        }
        header_.version_ = number<uint32_t>("version");
        if (header_.version_ == 3) return;
        const std::string found = std::to_string(header_.version_);
        const bool swapped = header_.version_ == 0x03000000U || header_.version_ == 0x02000000U;
        refuse("unsupported GGUF version", {.offset = 4},
               swapped ? words(found, " (a big-endian file)") : found, "3");
    }

    // A key or a tensor name: not empty, bounded, without NUL (which other readers stop at).
    std::string_view identifier(std::string_view what, uint64_t limit) {
        const uint64_t start = at_;
        const auto length = number<uint64_t>(words(what, " length"));
        if (length == 0 || length > limit) {
            refuse(words("impossible ", what, " length"), {.offset = start}, std::to_string(length),
                   words("1 to ", limit));
        }
        const std::string_view name = text(take(length, what));
        if (name.find('\0') != std::string_view::npos) {
            refuse(words(what, " with a NUL byte"), {.offset = start}, printable(name), "text");
        }
        return name;
    }

    ValueType value_type() {
        const uint64_t start = at_;
        const auto id = number<uint32_t>("value type");
        if (id >= value_sizes.size()) {
            refuse("unknown value type", {.key = key_, .offset = start}, std::to_string(id),
                   words("0 to ", value_sizes.size() - 1));
        }
        return static_cast<ValueType>(id);
    }

    void check_bools(Bytes values, uint64_t offset) const {
        for (size_t i = 0; i < values.size(); ++i) {
            if (std::to_integer<unsigned>(values[i]) > 1) {
                refuse("bool out of range", {.key = key_, .offset = offset + i},
                       std::to_string(std::to_integer<unsigned>(values[i])), "0 or 1");
            }
        }
    }

    // The elements of an array or a scalar (count 1).
    Bytes values(ValueType element, uint64_t count) {
        const uint64_t start = at_;
        if (element == ValueType::String) {
            if (count > left() / 8) {  // each string has at least its length
                refuse("impossible array count", {.key = key_, .offset = start},
                       std::to_string(count),
                       words(at_most(left() / 8), " in the ", left(), " bytes left"));
            }
            for (uint64_t i = 0; i < count; ++i) {
                take(number<uint64_t>("string length"), "string");
            }
            return file_.subspan(start, at_ - start);
        }
        const uint32_t size = value_sizes[static_cast<size_t>(element)];
        if (count > left() / size) {
            refuse("impossible value", {.key = key_, .offset = start},
                   words(count, " values of ", value_type_name(uint32_t(element))),
                   words(at_most(left() / size), " in the ", left(), " bytes left"));
        }
        const Bytes bytes = take(count * size, "values");
        if (element == ValueType::Bool) check_bools(bytes, start);
        return bytes;
    }

    void read_entry() {
        key_ = {};
        key_ = identifier("key", Header::max_key_bytes);
        Entry entry{};
        entry.key = key_;
        entry.type = value_type();
        entry.element = entry.type;
        entry.offset = at_;
        entry.count = 1;
        if (entry.type == ValueType::String) {
            entry.bytes = take(number<uint64_t>("string length"), "string");
        } else if (entry.type == ValueType::Array) {
            entry.element = value_type();
            if (entry.element == ValueType::Array) {
                refuse("array of arrays", {.key = key_, .offset = entry.offset}, "array",
                       "an array of scalars or strings");
            }
            entry.count = number<uint64_t>("array count");
            entry.bytes = values(entry.element, entry.count);
        } else {
            entry.bytes = values(entry.type, 1);
        }
        header_.entries_.push_back(entry);
        key_ = {};
    }

    void index_entries() {
        std::vector<uint32_t>& order = header_.by_key_;
        const std::deque<Entry>& entries = header_.entries_;
        order.resize(entries.size());
        std::iota(order.begin(), order.end(), 0U);
        std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
            const int c = entries[a].key.compare(entries[b].key);
            return c != 0 ? c < 0 : a < b;
        });
        for (size_t i = 1; i < order.size(); ++i) {
            const Entry& first = entries[order[i - 1]];
            const Entry& again = entries[order[i]];
            if (first.key == again.key) {
                refuse("duplicate key", {.key = again.key, .offset = again.offset},
                       "a second value", words("one, at offset ", first.offset));
            }
        }
    }

    void read_alignment() {
        if (header_.find("general.alignment") == nullptr) return;
        const Entry& entry = header_.require("general.alignment", ValueType::U32);
        const auto value = load<uint32_t>(entry.bytes.data());
        if (!std::has_single_bit(value) || value < Header::min_alignment ||
            value > Header::max_alignment) {
            refuse("impossible alignment", {.key = entry.key, .offset = entry.offset},
                   std::to_string(value),
                   words("a power of two from ", Header::min_alignment, " to ",
                         Header::max_alignment));
        }
        header_.alignment_ = value;
    }

    void read_tensor() {
        name_ = {};
        TensorInfo tensor{};
        tensor.info_offset = at_;
        tensor.name = name_ = identifier("tensor name", Header::max_name_bytes);
        const uint64_t dims_at = at_;
        tensor.n_dims = number<uint32_t>("dimension count");
        if (tensor.n_dims < 1 || tensor.n_dims > 4) {
            refuse("impossible dimension count", {.tensor = name_, .offset = dims_at},
                   std::to_string(tensor.n_dims), "1 to 4");
        }
        tensor.dims = {1, 1, 1, 1};
        for (uint32_t i = 0; i < tensor.n_dims; ++i) {
            const uint64_t dim_at = at_;
            tensor.dims[i] = number<uint64_t>("dimension");
            if (tensor.dims[i] == 0) {
                refuse("empty tensor", {.tensor = name_, .offset = dim_at},
                       words("dimension ", i, " is 0"), "at least 1");
            }
        }
        const uint64_t type_at = at_;
        const auto type = number<uint32_t>("tensor type");
        const TypeInfo* info = find_type(type);
        if (info == nullptr) {
            refuse("unknown tensor type", {.tensor = name_, .offset = type_at},
                   std::to_string(type), "a type that ggml defines");
        }
        tensor.type = info->type;
        tensor.bytes = measure(tensor, *info, dims_at);
        tensor.file_offset = number<uint64_t>("tensor offset");  // place_data() makes it absolute
        header_.tensors_.push_back(tensor);
        name_ = {};
    }

    uint64_t measure(const TensorInfo& tensor, const TypeInfo& info, uint64_t offset) const {
        if (tensor.dims[0] % info.block != 0) {
            refuse("row that is not whole blocks", {.tensor = tensor.name, .offset = offset},
                   words(tensor.dims[0], " elements of ", info.name),
                   words("a multiple of ", info.block));
        }
        // Division first: each factor is compared with what the limit still allows.
        uint64_t bytes = info.bytes;
        const std::array<uint64_t, 4> factors{tensor.dims[0] / info.block, tensor.dims[1],
                                              tensor.dims[2], tensor.dims[3]};
        for (const uint64_t factor : factors) {
            if (factor > file_.size() / bytes) {
                refuse("tensor larger than the file", {.tensor = tensor.name, .offset = offset},
                       words(shape_text(tensor), " ", info.name),
                       words(at_most(file_.size()), " bytes, the file's size"));
            }
            bytes *= factor;
        }
        return bytes;
    }

    void index_tensors() {
        std::vector<uint32_t>& order = header_.by_name_;
        const std::deque<TensorInfo>& tensors = header_.tensors_;
        order.resize(tensors.size());
        std::iota(order.begin(), order.end(), 0U);
        std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
            const int c = tensors[a].name.compare(tensors[b].name);
            return c != 0 ? c < 0 : a < b;
        });
        for (size_t i = 1; i < order.size(); ++i) {
            const TensorInfo& first = tensors[order[i - 1]];
            const TensorInfo& again = tensors[order[i]];
            if (first.name == again.name) {
                refuse("duplicate tensor", {.tensor = again.name, .offset = again.info_offset},
                       "a second entry", words("one, at offset ", first.info_offset));
            }
        }
    }

    // Makes the offsets absolute: aligned, inside the file, without overlap.
    void place_data() {
        header_.header_bytes_ = at_;
        const uint64_t beyond = at_ % header_.alignment_;
        const uint64_t padding = beyond == 0 ? 0 : header_.alignment_ - beyond;
        if (header_.tensors_.empty()) {
            header_.data_offset_ = at_;
            return;
        }
        if (padding > left()) {
            refuse("the file ends before its tensor data", {.offset = at_},
                   words(left(), " bytes left"), words(padding, " bytes of padding"));
        }
        header_.data_offset_ = at_ + padding;
        const uint64_t room = file_.size() - header_.data_offset_;
        std::vector<uint32_t> order(header_.tensors_.size());
        for (uint32_t i = 0; i < order.size(); ++i) {
            order[i] = i;
            TensorInfo& tensor = header_.tensors_[i];
            if (tensor.file_offset % header_.alignment_ != 0) {
                refuse("tensor data out of alignment",
                       {.tensor = tensor.name, .offset = tensor.info_offset},
                       words("data offset ", tensor.file_offset),
                       words("a multiple of ", header_.alignment_));
            }
            if (tensor.file_offset > room || tensor.bytes > room - tensor.file_offset) {
                refuse("tensor data beyond the end of the file",
                       {.tensor = tensor.name, .offset = tensor.info_offset},
                       words(tensor.bytes, " bytes at data offset ", tensor.file_offset),
                       words(at_most(room), " bytes of data, the file has ", file_.size()));
            }
            tensor.file_offset += header_.data_offset_;
        }
        const std::deque<TensorInfo>& tensors = header_.tensors_;
        std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
            return tensors[a].file_offset != tensors[b].file_offset
                       ? tensors[a].file_offset < tensors[b].file_offset
                       : a < b;
        });
        for (size_t i = 1; i < order.size(); ++i) {
            const TensorInfo& before = tensors[order[i - 1]];
            const TensorInfo& after = tensors[order[i]];
            if (after.file_offset - before.file_offset < before.bytes) {
                refuse("overlapping tensors", {.tensor = after.name, .offset = after.info_offset},
                       words("data at file offset ", after.file_offset),
                       words("nothing before the end of ", printable(before.name), ", ",
                             before.file_offset + before.bytes));
            }
        }
    }

    Bytes file_;
    uint64_t at_ = 0;
    std::string_view key_;  // being read, for messages
    std::string_view name_;
    Header header_;
};

Header Header::parse(Bytes file) { return HeaderParser(file).run(); }

const Entry* Header::find(std::string_view key) const noexcept {
    const auto it = std::lower_bound(
        by_key_.begin(), by_key_.end(), key,
        [&](uint32_t i, std::string_view wanted) { return entries_[i].key < wanted; });
    return it != by_key_.end() && entries_[*it].key == key ? &entries_[*it] : nullptr;
}

const TensorInfo* Header::find_tensor(std::string_view name) const noexcept {
    const auto it = std::lower_bound(
        by_name_.begin(), by_name_.end(), name,
        [&](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
    return it != by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

const Entry& Header::require(std::string_view key, ValueType type) const {
    const Entry* entry = find(key);
    if (entry == nullptr) {
        refuse("missing key", {.key = key}, "nothing", value_type_name(uint32_t(type)));
    }
    if (entry->type != type) {
        refuse("wrong value type", {.key = key, .offset = entry->offset},
               value_type_name(uint32_t(entry->type)), value_type_name(uint32_t(type)));
    }
    return *entry;
}

uint32_t Header::u32(std::string_view key) const {
    return load<uint32_t>(require(key, ValueType::U32).bytes.data());
}

float Header::f32(std::string_view key) const {
    return load<float>(require(key, ValueType::F32).bytes.data());
}

bool Header::boolean(std::string_view key) const {
    return require(key, ValueType::Bool).bytes[0] != std::byte{0};
}

std::string_view Header::string(std::string_view key) const {
    return text(require(key, ValueType::String).bytes);
}

const Entry& Header::array(std::string_view key, ValueType element) const {
    const Entry& entry = require(key, ValueType::Array);
    if (entry.element != element) {
        refuse("wrong element type", {.key = key, .offset = entry.offset},
               words("array of ", value_type_name(uint32_t(entry.element))),
               words("array of ", value_type_name(uint32_t(element))));
    }
    return entry;
}

StringArray Header::strings(std::string_view key) const {
    const Entry& entry = array(key, ValueType::String);
    return {entry.bytes, entry.count};
}

}  // namespace muser::model
