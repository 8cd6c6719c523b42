// One way to refuse a file: a sentence for people and the same facts for programs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "errors.h"

namespace muser::model {

// Where in the file; empty parts are left out.
struct Place {
    std::string_view key{};
    std::string_view tensor{};
    uint64_t offset = no_offset;
    static constexpr uint64_t no_offset = ~uint64_t{0};
};

// Throws GGUFError "WHAT: KEY or TENSOR at offset N: found F, expected E".
[[noreturn]] void refuse(std::string_view what, const Place& place, const std::string& found,
                         const std::string& expected);

}  // namespace muser::model
