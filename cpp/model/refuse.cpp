#include "model/refuse.h"

#include <utility>

#include "model/gguf_header.h"

namespace muser::model {

void refuse(std::string_view what, const Place& place, const std::string& found,
            const std::string& expected) {
    std::string message(what);
    Facts facts;
    const auto state = [&](const char* before, const char* name, std::string text) {
        message += before;
        message += text;
        facts.emplace_back(name, std::move(text));
    };
    if (!place.key.empty()) state(": key ", "key", printable(place.key));
    if (!place.tensor.empty()) state(": tensor ", "tensor", printable(place.tensor));
    if (place.offset != Place::no_offset) {
        state(" at offset ", "offset", std::to_string(place.offset));
    }
    state(": found ", "found", found);
    state(", expected ", "expected", expected);
    throw GGUFError(message, std::move(facts));
}

}  // namespace muser::model
