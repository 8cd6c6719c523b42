#include "gguf_builder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace muser::test {

Encoder& Encoder::integer(uint64_t v, int n) {
    for (int i = 0; i < n; ++i) bytes.push_back(static_cast<std::byte>(v >> (8 * i) & 0xff));
    return *this;
}

Encoder& Encoder::f32(float v) {
    uint32_t bits = 0;
    std::memcpy(&bits, &v, sizeof bits);
    return u32(bits);
}

Encoder& Encoder::raw(std::string_view v) {
    for (const char c : v) bytes.push_back(static_cast<std::byte>(c));
    return *this;
}

Encoder& Encoder::zeros(uint64_t n) {
    bytes.insert(bytes.end(), n, std::byte{0});
    return *this;
}

uint64_t tensor_bytes(uint32_t type, const std::vector<uint64_t>& dims) {
    uint64_t elements = 1;
    for (const uint64_t d : dims) elements *= d;
    switch (type) {
        case F32:
            return elements * 4;
        case F16:
        case BF16:
            return elements * 2;
        case Q4_0:
            return elements / 32 * 18;
        case Q8_0:
            return elements / 32 * 34;
        case Q3_K:
            return elements / 256 * 110;
        case Q4_K:
            return elements / 256 * 144;
        case Q5_K:
            return elements / 256 * 176;
        case Q6_K:
            return elements / 256 * 210;
        case I8:
            return elements;
        default:
            throw std::logic_error("tensor_bytes: a type the tests do not use");
    }
}

void GgufBuilder::strings(const std::string& key, const std::vector<std::string>& v) {
    Encoder e;
    e.u32(array_id).u32(string_id).u64(v.size());
    for (const std::string& s : v) e.text(s);
    set(key, e);
}

void GgufBuilder::bools(const std::string& key, const std::vector<uint8_t>& v) {
    Encoder e;
    e.u32(array_id).u32(bool_id).u64(v.size());
    for (const uint8_t b : v) e.u8(b);
    set(key, e);
}

void GgufBuilder::i32s(const std::string& key, const std::vector<int32_t>& v) {
    Encoder e;
    e.u32(array_id).u32(i32_id).u64(v.size());
    for (const int32_t x : v) e.u32(static_cast<uint32_t>(x));
    set(key, e);
}

void GgufBuilder::set(const std::string& key, const Encoder& value) {
    for (auto& [name, bytes] : entries) {
        if (name == key) {
            bytes = value.bytes;
            return;
        }
    }
    append(key, value);
}

void GgufBuilder::remove(const std::string& key) {
    const auto it = std::find_if(entries.begin(), entries.end(),
                                 [&](const auto& entry) { return entry.first == key; });
    if (it == entries.end()) throw std::logic_error("remove: no key " + key);
    entries.erase(it);
}

BuiltTensor& GgufBuilder::tensor(const std::string& name) {
    for (BuiltTensor& t : tensors) {
        if (t.name == name) return t;
    }
    throw std::logic_error("no tensor " + name);
}

void GgufBuilder::remove_tensor(const std::string& name) {
    const BuiltTensor* t = &tensor(name);
    tensors.erase(tensors.begin() + (t - tensors.data()));
}

std::vector<uint64_t> GgufBuilder::offsets(uint64_t& end) const {
    std::vector<uint64_t> out;
    end = 0;
    for (const BuiltTensor& t : tensors) {
        const uint64_t offset = t.offset.value_or(end);
        out.push_back(offset);
        if (t.offset.has_value()) continue;  // a test's own offset claims no room
        end = align(end + (t.bytes.has_value() ? *t.bytes : tensor_bytes(t.type, t.dims)));
    }
    return out;
}

Buffer GgufBuilder::header() const {
    Encoder e;
    e.raw(magic).u32(version).u64(tensor_count.value_or(tensors.size()));
    e.u64(key_count.value_or(entries.size()));
    for (const auto& [key, value] : entries) {
        e.text(key);
        e.bytes.insert(e.bytes.end(), value.begin(), value.end());
    }
    uint64_t end = 0;
    const std::vector<uint64_t> where = offsets(end);
    for (size_t i = 0; i < tensors.size(); ++i) {
        const BuiltTensor& t = tensors[i];
        e.text(t.name).u32(t.n_dims.value_or(static_cast<uint32_t>(t.dims.size())));
        for (const uint64_t d : t.dims) e.u64(d);
        e.u32(t.type).u64(where[i]);
    }
    return e.bytes;
}

Buffer GgufBuilder::build() const {
    Buffer file = header();
    uint64_t end = 0;
    const std::vector<uint64_t> where = offsets(end);
    const uint64_t data = align(file.size());
    file.resize(data + end);
    for (size_t i = 0; i < tensors.size(); ++i) {
        const BuiltTensor& t = tensors[i];
        if (t.type != F32 || t.offset.has_value() || t.bytes.has_value()) continue;
        for (uint64_t k = 0; k < tensor_bytes(F32, t.dims) / 4; ++k) {
            std::memcpy(file.data() + data + where[i] + 4 * k, &t.fill, 4);
        }
    }
    return file;
}

namespace {

void add_metadata(GgufBuilder& b, const TinyModel& m, uint64_t merges) {
    const std::string p = m.architecture + ".";
    b.string("general.architecture", m.architecture);
    b.string("general.name", "test");
    b.u32(p + "block_count", m.layers);
    b.u32(p + "context_length", m.context);
    b.u32(p + "embedding_length", m.hidden);
    b.u32(p + "feed_forward_length", m.ff);
    b.u32(p + "attention.head_count", m.heads);
    b.u32(p + "attention.head_count_kv", m.kv_heads);
    b.u32(p + "attention.key_length", m.head_dim);
    b.u32(p + "attention.value_length", m.head_dim);
    b.f32(p + "attention.layer_norm_rms_epsilon", 1e-5F);
    b.u32(p + "attention.sliding_window", m.window);
    if (m.pattern_period != 0) {
        b.u32(p + "attention.sliding_window_pattern", m.pattern_period);
    } else {
        std::vector<uint8_t> flags;
        for (uint32_t l = 0; l < m.layers; ++l) flags.push_back(l % 4 != 3 ? 1 : 0);
        b.bools(p + "attention.sliding_window_pattern", flags);
    }
    b.f32(p + "rope.freq_base", 500000.0F);
    b.f32(p + "logit_scale", 0.19611613F);
    b.f32(p + "final_logit_softcapping", 20.0F);
    b.string("tokenizer.ggml.model", "gpt2");
    b.string("tokenizer.ggml.pre", "llama4");
    std::vector<std::string> tokens;
    for (uint32_t i = 0; i < m.vocab; ++i) tokens.push_back("token " + std::to_string(i));
    b.strings("tokenizer.ggml.tokens", tokens);
    b.i32s("tokenizer.ggml.token_type", std::vector<int32_t>(m.vocab, 1));
    std::vector<std::string> pairs;
    for (uint64_t i = 0; i < merges; ++i) pairs.push_back("merge " + std::to_string(i));
    b.strings("tokenizer.ggml.merges", pairs);
    b.u32("tokenizer.ggml.bos_token_id", m.vocab - 3);
    b.u32("tokenizer.ggml.eos_token_id", m.vocab - 2);
    b.boolean("tokenizer.ggml.add_bos_token", 1);
}

void add_tensors(GgufBuilder& b, const TinyModel& m) {
    const uint64_t q = uint64_t{m.heads} * m.head_dim;
    const uint64_t kv = uint64_t{m.kv_heads} * m.head_dim;
    const uint64_t h = m.hidden;
    const uint64_t ff = m.ff;
    const auto matrix = [&](const std::string& name, uint64_t cols, uint64_t rows) {
        b.tensors.push_back({.name = name, .dims = {cols, rows}, .type = m.matrix_type});
    };
    const auto norm = [&](const std::string& name, uint64_t n, float value) {
        b.tensors.push_back({.name = name, .dims = {n}, .type = F32, .fill = value});
    };
    matrix("token_embd.weight", h, m.vocab);
    for (uint32_t l = 0; l < m.layers; ++l) {
        const std::string p = "blk." + std::to_string(l) + ".";
        norm(p + "attn_norm.weight", h, 0.5F);
        matrix(p + "attn_q.weight", h, q);
        matrix(p + "attn_k.weight", h, kv);
        matrix(p + "attn_v.weight", h, kv);
        norm(p + "attn_q_norm.weight", m.head_dim, 3.87F);
        norm(p + "attn_k_norm.weight", m.head_dim, 1.0F);
        matrix(p + "attn_gate.weight", h, q);
        matrix(p + "attn_output.weight", q, h);
        norm(p + "post_attention_norm.weight", h, 1.5F);
        norm(p + "ffn_norm.weight", h, 1.0F);
        matrix(p + "ffn_gate.weight", h, ff);
        matrix(p + "ffn_up.weight", h, ff);
        matrix(p + "ffn_down.weight", ff, h);
        norm(p + "post_ffw_norm.weight", h, 1.0F);
    }
    norm("output_norm.weight", h, 1.0F);
    matrix("output.weight", h, m.vocab);
}

}  // namespace

GgufBuilder tiny_model(const TinyModel& shape) {
    GgufBuilder b;
    add_metadata(b, shape, 8);
    add_tensors(b, shape);
    return b;
}

GgufBuilder tiny_mixed_model() {
    TinyModel m;
    m.hidden = 256;
    m.ff = 512;
    m.heads = 4;
    m.kv_heads = 2;
    m.head_dim = 64;
    m.matrix_type = Q4_K;
    GgufBuilder b = tiny_model(m);
    b.tensor("output.weight").type = Q5_K;
    b.tensor("blk.0.attn_v.weight").type = Q6_K;
    b.tensor("blk.0.ffn_down.weight").type = Q6_K;
    b.tensor("blk.1.attn_v.weight").type = Q8_0;
    b.tensor("blk.1.attn_q.weight").type = F16;
    b.tensor("blk.2.attn_k.weight").type = BF16;
    b.tensor("blk.3.ffn_up.weight").type = F32;
    return b;
}

GgufBuilder real_model() {
    TinyModel m{.layers = 52,
                .hidden = 6656,
                .ff = 19968,
                .heads = 32,
                .kv_heads = 2,
                .head_dim = 128,
                .vocab = 202048,
                .window = 2048,
                .context = 131072,
                .matrix_type = Q4_K};
    GgufBuilder b;
    add_metadata(b, m, 439802);
    add_tensors(b, m);
    b.tensor("output.weight").type = Q5_K;
    // The layers that the published mix keeps at six bits.
    for (uint32_t l = 0; l < m.layers; ++l) {
        const bool six = l < 6 || l >= 45 || (l >= 8 && (l - 8) % 3 == 0);
        if (!six) continue;
        const std::string p = "blk." + std::to_string(l) + ".";
        b.tensor(p + "attn_v.weight").type = Q6_K;
        b.tensor(p + "ffn_down.weight").type = Q6_K;
    }
    return b;
}

TemporaryFile::TemporaryFile(const Buffer& content) {
    static int serial = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("muser-model-test-" + std::to_string(::getpid()) + "-" + std::to_string(serial++)))
                .string();
    const int fd = ::open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) throw std::runtime_error("cannot create " + path_);
    ::close(fd);
    write(0, content.data(), content.size());
}

TemporaryFile::~TemporaryFile() { ::unlink(path_.c_str()); }

void TemporaryFile::truncate(uint64_t size) const {
    if (::truncate(path_.c_str(), static_cast<off_t>(size)) != 0) {
        throw std::runtime_error("cannot resize " + path_);
    }
}

void TemporaryFile::write(uint64_t offset, const void* data, size_t size) const {
    const int fd = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    const ssize_t written = ::pwrite(fd, data, size, static_cast<off_t>(offset));
    ::close(fd);
    if (written != static_cast<ssize_t>(size)) throw std::runtime_error("cannot write " + path_);
}

}  // namespace muser::test
