// Norm weights carry facts that no metadata key holds: the query scale (attn_q_norm, constant
// 3.87), the unit key norm, and the "+1" that converters fold into the four layer norms. A file
// that gets one of them wrong has every shape right, so only the values can tell.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "model/refuse.h"
#include "model/weights.h"
#include "model/words.h"

namespace muser::model {
namespace {

constexpr float query_scale = 3.87F;
// Bounds on a mean gain, wide: weights near 1 are usual, and a factor of 50 is another mistake.
constexpr double low_mean = 0.02;
constexpr double high_mean = 50;

struct Range {
    float low, high;
    double mean;
};

Range measure(const Weight& norm) {
    Range r{norm.f32()[0], norm.f32()[0], 0};
    for (uint64_t i = 0; i < norm.cols; ++i) {
        const float x = norm.f32()[i];
        // By bits: the test holds under any floating-point mode.
        uint32_t bits = 0;
        std::memcpy(&bits, &x, sizeof bits);
        if ((bits & 0x7f800000U) == 0x7f800000U) {
            refuse("norm weight that is not finite",
                   {.tensor = norm.name, .offset = norm.file_offset + 4 * i},
                   words("a NaN or infinity as element ", i), "finite values");
        }
        r.low = std::min(r.low, x);
        r.high = std::max(r.high, x);
        r.mean += x;
    }
    r.mean /= static_cast<double>(norm.cols);
    return r;
}

std::string text(double value) {
    std::array<char, 32> out{};
    std::snprintf(out.data(), out.size(), "%.6g", value);
    return out.data();
}

std::string name_of(const Weight& weight) { return printable(weight.name); }

void check_constant(const Weight& norm, float expected, const char* means,
                    std::vector<std::string>& warnings) {
    const Range r = measure(norm);
    if (std::abs(r.low - expected) <= 1e-3F && std::abs(r.high - expected) <= 1e-3F) return;
    warnings.push_back(words(name_of(norm), " holds ", text(r.low), " to ", text(r.high),
                             ", expected the constant ", text(expected), " (", means, ")"));
}

Range check_mean(const Weight& norm, std::vector<std::string>& warnings) {
    const Range r = measure(norm);
    if (r.mean < low_mean || r.mean > high_mean) {
        warnings.push_back(words(name_of(norm), " has mean ", text(r.mean), ", expected ",
                                 text(low_mean), " to ", text(high_mean)));
    }
    return r;
}

}  // namespace

void check_norms(const Weights& weights, std::vector<std::string>& warnings) {
    Range all{INFINITY, -INFINITY, 0};
    const Weight* lowest = nullptr;
    for (const LayerWeights& layer : weights.layers) {
        check_constant(layer.attn_q_norm, query_scale, "the query scale", warnings);
        check_constant(layer.attn_k_norm, 1.0F, "keys are not scaled", warnings);
        for (const Weight* norm : {&layer.attn_norm, &layer.post_attention_norm, &layer.ffn_norm,
                                   &layer.post_ffw_norm}) {
            const Range r = check_mean(*norm, warnings);
            if (r.low < all.low) {
                all.low = r.low;
                lowest = norm;
            }
            all.high = std::max(all.high, r.high);
        }
    }
    check_mean(weights.output_norm, warnings);
    // Layer norms are stored as gain = weight + 1, and trained gains go down to 0 but not below.
    if (all.low < 0) {
        warnings.push_back(words("layer norm gains go down to ", text(all.low), " (",
                                 name_of(*lowest), "): the +1 may not have been folded in"));
    } else if (all.low >= 1 && all.high > 1) {
        warnings.push_back("no layer norm gain is below 1: the +1 may have been folded in twice");
    }
}

}  // namespace muser::model
