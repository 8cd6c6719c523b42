#include "contract/sampling.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <vector>

#include "contract/f32.h"
#include "contract/pointwise.h"
#include "contract/tree.h"
#include "errors.h"

namespace muser::contract {
namespace {

// tree over the first n of p, padded with +0 to a power of two.
float padded_tree(const std::vector<float>& p, size_t n) {
    std::vector<float> v(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(n));
    v.resize(std::bit_ceil(n), 0.0f);
    return tree(v.data(), v.size());
}

[[noreturn]] void out_of_range(const char* name, float found, const char* expected) {
    throw ConfigError(
        std::string(name) + " must be " + expected + ", found " + std::to_string(found),
        {{"setting", name}, {"found", std::to_string(found)}, {"expected", expected}});
}

void check(const float* logits, size_t n, const SamplingParams& params) {
    if (!(params.temperature >= 0.0f) || non_finite(params.temperature)) {
        out_of_range("temperature", params.temperature, "finite and not negative");
    }
    if (!(params.top_p > 0.0f && params.top_p <= 1.0f)) {
        out_of_range("top_p", params.top_p, "in (0, 1]");
    }
    if (n == 0) throw ConfigError("sampling needs at least one logit", {{"found", "0"}});
    for (size_t i = 0; i < n; ++i) {
        if (non_finite(logits[i])) {
            throw NonFiniteError("logit " + std::to_string(i) + " is not finite",
                                 {{"id", std::to_string(i)}});
        }
    }
}

// Ids in descending logit, lowest id first on ties, the first k of them.
std::vector<uint32_t> candidates(const float* logits, size_t n, uint32_t top_k) {
    std::vector<uint32_t> ids(n);
    std::iota(ids.begin(), ids.end(), 0u);
    const size_t kept = top_k == 0 ? n : std::min<size_t>(top_k, n);
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(),
                      [&](uint32_t a, uint32_t b) {
                          const float x = flush(logits[a]);
                          const float y = flush(logits[b]);
                          return x > y || (x == y && a < b);
                      });
    ids.resize(kept);
    return ids;
}

// How many candidates top-p keeps.
size_t nucleus(const std::vector<float>& p, float top_p) {
    const float bound = mul(top_p, padded_tree(p, p.size()));
    float running = 0.0f;
    for (size_t i = 0; i < p.size(); ++i) {
        running = add(running, p[i]);  // 0 + p[0] is p[0]
        if (running >= bound) return i + 1;
    }
    return p.size();
}

}  // namespace

Philox philox(const uint32_t counter[4], const uint32_t key[2]) {
    uint32_t c0 = counter[0];
    uint32_t c1 = counter[1];
    uint32_t c2 = counter[2];
    uint32_t c3 = counter[3];
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];
    for (int round = 0; round < 10; ++round) {
        const uint64_t left = uint64_t{0xd2511f53u} * c0;
        const uint64_t right = uint64_t{0xcd9e8d57u} * c2;
        const uint32_t next0 = static_cast<uint32_t>(right >> 32) ^ c1 ^ k0;
        const uint32_t next2 = static_cast<uint32_t>(left >> 32) ^ c3 ^ k1;
        c0 = next0;
        c1 = static_cast<uint32_t>(right);
        c2 = next2;
        c3 = static_cast<uint32_t>(left);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return {{c0, c1, c2, c3}};
}

float uniform(uint64_t seed, uint64_t position) {
    const uint32_t counter[4] = {static_cast<uint32_t>(position),
                                 static_cast<uint32_t>(position >> 32), 0, 0};
    const uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    return static_cast<float>(philox(counter, key).words[0] >> 8) * 0x1p-24f;
}

uint32_t sample(const float* logits, size_t n, const SamplingParams& params, uint64_t position) {
    check(logits, n, params);
    if (flush(params.temperature) == 0.0f) return argmax(logits, n);

    const std::vector<uint32_t> ids = candidates(logits, n, params.top_k);
    std::vector<float> p(ids.size());
    const float top = div(logits[ids[0]], params.temperature);
    for (size_t i = 0; i < ids.size(); ++i) {
        p[i] = exp(sub(div(logits[ids[i]], params.temperature), top));
    }
    const size_t kept = params.top_p < 1.0f ? nucleus(p, params.top_p) : p.size();

    const float target = mul(uniform(params.seed, position), padded_tree(p, kept));
    float running = 0.0f;
    size_t last = 0;
    for (size_t i = 0; i < kept; ++i) {
        running = add(running, p[i]);
        if (running > target) return ids[i];
        if (p[i] > 0.0f) last = i;
    }
    return ids[last];
}

}  // namespace muser::contract
