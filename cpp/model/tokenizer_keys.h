// What a tokenizer needs from the metadata, as stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "errors.h"
#include "model/gguf_header.h"

namespace muser::model {

// Absent optional keys stay empty; a present key of a wrong type, or an id outside the
// vocabulary, is a GGUFError. Strings are bytes: whether they are UTF-8 is the tokenizer's matter.
struct TokenizerKeys {
    std::string_view model;
    std::string_view pre;
    std::string_view chat_template;
    StringArray tokens;
    StringArray merges;
    Bytes token_types;  // little-endian int32 per token, not aligned; empty where absent
    std::optional<uint32_t> bos, eos, eot, eom, pad, unknown, mask;
    std::optional<bool> add_bos, add_eos, add_sep;
};

TokenizerKeys read_tokenizer_keys(const Header& header);

}  // namespace muser::model
