#include "model/refuse.h"

#include "model/gguf_header.h"

namespace muser::model {

void refuse(std::string_view what, const Place& place, const std::string& found,
            const std::string& expected) {
    std::string message(what);
    Facts facts;
    if (!place.key.empty()) {
        const std::string key = printable(place.key);
        message += ": key " + key;
        facts.emplace_back("key", key);
    }
    if (!place.tensor.empty()) {
        const std::string tensor = printable(place.tensor);
        message += ": tensor " + tensor;
        facts.emplace_back("tensor", tensor);
    }
    if (place.offset != Place::no_offset) {
        const std::string offset = std::to_string(place.offset);
        message += " at offset " + offset;
        facts.emplace_back("offset", offset);
    }
    message += ": found " + found + ", expected " + expected;
    facts.emplace_back("found", found);
    facts.emplace_back("expected", expected);
    throw GGUFError(message, std::move(facts));
}

}  // namespace muser::model
