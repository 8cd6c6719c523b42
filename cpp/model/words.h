// Text for messages: words("row ", 3, " of ", name). Numbers as decimal, the rest as text.
//
// (Chains of operator+ over temporaries also set off a false -Wrestrict in gcc 12.)
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace muser::model {

template <typename... Parts>
std::string words(const Parts&... parts) {
    std::string out;
    const auto add = [&out](const auto& part) {
        if constexpr (std::integral<std::remove_cvref_t<decltype(part)>>) {
            out += std::to_string(part);
        } else {
            out += std::string_view(part);
        }
    };
    (add(parts), ...);
    return out;
}

}  // namespace muser::model
