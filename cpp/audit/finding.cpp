#include "audit/finding.h"

namespace muser::audit {

const char* name(Kind kind) {
    switch (kind) {
        case Kind::raw:
            return "RAW";
        case Kind::war:
            return "WAR";
        case Kind::waw:
            return "WAW";
        case Kind::undeclared:
            return "UNDECLARED";
        case Kind::untouched:
            return "UNTOUCHED";
        case Kind::uninitialised:
            return "UNINITIALISED";
        case Kind::order:
            return "ORDER";
        case Kind::redundant:
            return "REDUNDANT";
        case Kind::host:
            return "HOST";
        case Kind::lifetime:
            return "LIFETIME";
    }
    return "?";
}

std::vector<std::pair<std::string, std::string>> Finding::lines() const {
    std::vector<std::pair<std::string, std::string>> out;
    const auto add = [&](const std::string& key, const std::string& value) {
        if (!value.empty()) out.emplace_back(key, value);
    };
    const auto number = [&](const std::string& key, uint32_t value) {
        if (value != kNone) out.emplace_back(key, std::to_string(value));
    };
    add("kind", name(kind));
    add("pair", pair);
    const char* const sides[] = {"first.", "second."};
    for (size_t i = 0; i < places.size() && i < 2; ++i) {
        const Place& place = places[i];
        const std::string side = places.size() == 1 ? "" : sides[i];
        add(side + "closure", place.closure);
        if (place.layer >= 0) add(side + "layer", std::to_string(place.layer));
        add(side + "kernel", place.kernel);
        add(side + "argument", place.argument);
        add(side + "buffer", place.buffer);
        if (place.object != kNone && place.end > place.begin) {
            add(side + "access", place.access == Access::read    ? "read"
                                 : place.access == Access::write ? "write"
                                                                 : "read_write");
            add(side + "bytes", std::to_string(place.begin) + ".." + std::to_string(place.end));
        }
        number(side + "dispatch", place.dispatch);
        number(side + "host_event", place.host_event);
        number(side + "commands", place.commands);
        number(side + "encoder", place.encoder);
    }
    number("barrier", barrier);
    add("ordering", ordering);
    add("repair", repair);
    if (strict) add("model", "strict");
    return out;
}

std::string Finding::text() const {
    std::string out = sentence + "\n";
    for (const auto& [key, value] : lines()) out += key + "=" + value + "\n";
    return out;
}

}  // namespace muser::audit
