#include "model/model_weights.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

namespace muser::model {
namespace {

constexpr uint64_t mib = uint64_t{1} << 20;

std::vector<const Weight*> all(const Weights& w) {
    std::vector<const Weight*> out{&w.token_embd};
    for (const LayerWeights& l : w.layers) {
        out.insert(out.end(),
                   {&l.attn_norm, &l.attn_q, &l.attn_k, &l.attn_v, &l.attn_gate, &l.attn_q_norm,
                    &l.attn_k_norm, &l.attn_output, &l.post_attention_norm, &l.ffn_norm,
                    &l.ffn_gate, &l.ffn_up, &l.ffn_down, &l.post_ffw_norm});
    }
    out.insert(out.end(), {&w.output_norm, &w.output});
    return out;
}

Census summarise(const Header& header, const Weights& weights) {
    Census census;
    std::map<TensorType, TypeCount> types;
    for (const Weight* weight : all(weights)) {
        TypeCount& count =
            types.try_emplace(weight->type, TypeCount{weight->type, 0, 0}).first->second;
        ++count.tensors;
        count.bytes += weight->bytes;
        ++census.tensors;
        census.weight_bytes += weight->bytes;
    }
    for (const auto& [type, count] : types) census.types.push_back(count);
    const Weight& table = weights.token_embd;
    census.bytes_per_token = census.weight_bytes - table.bytes + table.row_bytes();
    census.header_bytes = header.header_bytes();
    census.metadata_keys = header.entries().size();
    return census;
}

}  // namespace

Model::Model(Bytes bytes, std::shared_ptr<MappedFile> file)
    : file_(std::move(file)),
      bytes_(bytes),
      header_(Header::parse(bytes_)),
      geometry_(read_geometry(header_, warnings_)),
      weights_(take_census(header_, geometry_, bytes_)),
      census_(summarise(header_, weights_)),
      tokenizer_(read_tokenizer_keys(header_)) {
    check_norms(weights_, warnings_);
}

Model Model::open(const std::string& path) {
    auto file = std::make_shared<MappedFile>(path);
    const Bytes bytes = file->bytes();
    return Model(bytes, std::move(file));
}

Model Model::from_bytes(Bytes file) {
    if (reinterpret_cast<uintptr_t>(file.data()) % Header::min_alignment != 0) {
        throw std::invalid_argument("Model::from_bytes: bytes must start at a multiple of 8");
    }
    return Model(file, nullptr);
}

std::vector<const Weight*> Model::weights() const { return all(weights_); }

std::vector<ByteRange> Model::fingerprint_ranges() const {
    std::vector<const Weight*> order = all(weights_);
    std::sort(order.begin(), order.end(),
              [](const Weight* a, const Weight* b) { return a->file_offset < b->file_offset; });
    std::vector<ByteRange> ranges{{"header", 0, header_.header_bytes()}};
    for (const Weight* w : order) {
        if (w->bytes <= 2 * mib) {
            ranges.push_back({w->name, w->file_offset, w->bytes});
        } else {
            ranges.push_back({w->name, w->file_offset, mib});
            ranges.push_back({w->name, w->file_offset + w->bytes - mib, mib});
        }
    }
    return ranges;
}

}  // namespace muser::model
