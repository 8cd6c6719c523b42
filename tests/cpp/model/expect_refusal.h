// What every refused file must give: GGUFError with found and expected, and a place.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "errors.h"
#include "gguf_builder.h"
#include "model/model_weights.h"

namespace muser::test {

inline model::Bytes view(const Buffer& buffer) { return {buffer.data(), buffer.size()}; }

inline std::string fact(const Error& error, std::string_view name) {
    for (const auto& [key, value] : error.facts()) {
        if (key == name) return value;
    }
    return "";
}

// The refusal's message must contain `what`; returns the error for further checks.
template <typename Action>
GGUFError refusal(std::string_view what, Action action) {
    try {
        action();
    } catch (const GGUFError& error) {
        EXPECT_NE(std::string_view(error.what()).find(what), std::string_view::npos)
            << "said: " << error.what() << "\nnot: " << what;
        EXPECT_NE(fact(error, "found"), "") << error.what();
        EXPECT_NE(fact(error, "expected"), "") << error.what();
        EXPECT_TRUE(fact(error, "offset") != "" || fact(error, "key") != "" ||
                    fact(error, "tensor") != "" || fact(error, "path") != "")
            << error.what();
        return error;
    }
    ADD_FAILURE() << "accepted; should say: " << what;
    return GGUFError("accepted");
}

inline GGUFError refused_header(std::string_view what, const Buffer& file) {
    return refusal(what, [&] { model::Header::parse(view(file)); });
}

inline GGUFError refused_model(std::string_view what, const Buffer& file) {
    return refusal(what, [&] { model::Model::from_bytes(view(file)); });
}

}  // namespace muser::test
