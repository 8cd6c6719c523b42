#include "model/tokenizer_keys.h"

#include <array>
#include <string>

#include "model/refuse.h"
#include "model/words.h"

namespace muser::model {
namespace {

struct IdKey {
    std::string_view key;
    std::optional<uint32_t> TokenizerKeys::*member;
};
constexpr std::array id_keys{
    IdKey{"tokenizer.ggml.bos_token_id", &TokenizerKeys::bos},
    IdKey{"tokenizer.ggml.eos_token_id", &TokenizerKeys::eos},
    IdKey{"tokenizer.ggml.eot_token_id", &TokenizerKeys::eot},
    IdKey{"tokenizer.ggml.eom_token_id", &TokenizerKeys::eom},
    IdKey{"tokenizer.ggml.padding_token_id", &TokenizerKeys::pad},
    IdKey{"tokenizer.ggml.unknown_token_id", &TokenizerKeys::unknown},
    IdKey{"tokenizer.ggml.mask_token_id", &TokenizerKeys::mask},
};

struct FlagKey {
    std::string_view key;
    std::optional<bool> TokenizerKeys::*member;
};
constexpr std::array flag_keys{
    FlagKey{"tokenizer.ggml.add_bos_token", &TokenizerKeys::add_bos},
    FlagKey{"tokenizer.ggml.add_eos_token", &TokenizerKeys::add_eos},
    FlagKey{"tokenizer.ggml.add_sep_token", &TokenizerKeys::add_sep},
};

struct TextKey {
    std::string_view key;
    std::string_view TokenizerKeys::*member;
};
constexpr std::array text_keys{
    TextKey{"tokenizer.ggml.model", &TokenizerKeys::model},
    TextKey{"tokenizer.ggml.pre", &TokenizerKeys::pre},
    TextKey{"tokenizer.chat_template", &TokenizerKeys::chat_template},
};

}  // namespace

TokenizerKeys read_tokenizer_keys(const Header& header) {
    TokenizerKeys keys;
    keys.tokens = header.strings("tokenizer.ggml.tokens");
    for (const auto& [key, member] : text_keys) {
        if (header.find(key) != nullptr) keys.*member = header.string(key);
    }
    for (const auto& [key, member] : flag_keys) {
        if (header.find(key) != nullptr) keys.*member = header.boolean(key);
    }
    for (const auto& [key, member] : id_keys) {
        const Entry* entry = header.find(key);
        if (entry == nullptr) continue;
        const uint32_t id = header.u32(key);
        if (id >= keys.tokens.size()) {
            refuse("token id outside the vocabulary", {.key = key, .offset = entry->offset},
                   std::to_string(id), words("below ", keys.tokens.size()));
        }
        keys.*member = id;
    }
    constexpr std::string_view merges = "tokenizer.ggml.merges";
    if (header.find(merges) != nullptr) keys.merges = header.strings(merges);
    constexpr std::string_view types = "tokenizer.ggml.token_type";
    if (header.find(types) != nullptr) {
        const Entry& entry = header.array(types, ValueType::I32);
        if (entry.count != keys.tokens.size()) {
            refuse("one type per token is needed", {.key = types, .offset = entry.offset},
                   words(entry.count, " types"),
                   words(keys.tokens.size(), ", as tokenizer.ggml.tokens"));
        }
        keys.token_types = entry.bytes;
    }
    return keys;
}

}  // namespace muser::model
