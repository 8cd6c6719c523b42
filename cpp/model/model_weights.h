// A Muse Glimmer file, checked and open: mapping, geometry, weights by role.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"
#include "model/geometry.h"
#include "model/gguf_header.h"
#include "model/mapped_file.h"
#include "model/tokenizer_keys.h"
#include "model/weights.h"

namespace muser::model {

struct TypeCount {
    TensorType type;
    uint64_t tensors;
    uint64_t bytes;
};

struct Census {
    std::vector<TypeCount> types;  // by ascending type id
    uint64_t tensors = 0;
    uint64_t weight_bytes = 0;
    uint64_t bytes_per_token = 0;  // read per token: one row of token_embd, all of the rest
    uint64_t header_bytes = 0;
    uint64_t metadata_keys = 0;
};

struct ByteRange {
    std::string_view name;  // tensor name; "header" for the header
    uint64_t offset;
    uint64_t length;
};

class Model {
  public:
    // Maps and checks. GGUFError.
    static Model open(const std::string& path);
    // The same over bytes in memory, which must outlive the Model and start at a multiple of 8.
    static Model from_bytes(Bytes file);

    const Header& header() const noexcept { return header_; }
    const Geometry& geometry() const noexcept { return geometry_; }
    Bytes bytes() const noexcept { return bytes_; }
    const MappedFile* file() const noexcept { return file_.get(); }  // nullptr for from_bytes
    // The mapping, for whoever may still read it when the Model is gone.
    std::shared_ptr<const MappedFile> mapping() const noexcept { return file_; }

    const Weight& token_embd() const noexcept { return weights_.token_embd; }
    const std::vector<LayerWeights>& layers() const noexcept { return weights_.layers; }
    const Weight& output_norm() const noexcept { return weights_.output_norm; }
    const Weight& output() const noexcept { return weights_.output; }
    // Every weight: embedding, layers in order, output_norm, output.
    std::vector<const Weight*> weights() const;

    const Census& census() const noexcept { return census_; }
    const TokenizerKeys& tokenizer() const noexcept { return tokenizer_; }
    // Things a working file should not have, told and not refused.
    const std::vector<std::string>& warnings() const noexcept { return warnings_; }

    // What a fingerprint covers: the header, then each tensor's first and last MiB in file order
    // (one range where they meet).
    std::vector<ByteRange> fingerprint_ranges() const;

  private:
    Model(Bytes bytes, std::shared_ptr<MappedFile> file);

    std::shared_ptr<MappedFile> file_;  // first: everything below points into it
    Bytes bytes_;
    Header header_;
    std::vector<std::string> warnings_;
    Geometry geometry_;
    Weights weights_;
    Census census_;
    TokenizerKeys tokenizer_;
};

}  // namespace muser::model
