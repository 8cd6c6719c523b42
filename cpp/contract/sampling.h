// Sampling (docs/numerics.md §10), so that a seed gives the same ids everywhere.
//
// The order of every operation, all of them the f32 operations of f32.h:
//  1. temperature 0: the greedy choice (argmax); nothing is drawn.
//  2. Candidates are all ids in order of descending logit, lowest id first on ties. Top-k keeps the
//     first k of them (k = 0 or k >= n: all).
//  3. z[i] = logit[i] / temperature;  p[i] = exp(z[i] - z[0]).
//  4. S = tree over p padded with +0 to a power of two.
//  5. Top-p below 1: with bound = top_p * S and the running sum c = p[0], then c = c + p[i], the
//     candidates up to and including the first with c >= bound are kept (all if there is none), and
//     S becomes the tree over the kept ones, padded likewise.
//  6. The uniform u = f32(word >> 8) * 2^-24 is exact and lies in [0, 1). The word is the first of
//     Philox 4x32-10 with key = seed (low word first) and counter = position (low word first, upper
//     two words 0).
//  7. target = u * S. With the running sum of the kept p as in 5, the choice is the first candidate
//     with c > target; if rounding leaves none, the last kept one with p > 0, else the first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muser::contract {

// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw, SC 2011).
struct Philox {
    uint32_t words[4];
};
Philox philox(const uint32_t counter[4], const uint32_t key[2]);

// The uniform of a position, in [0, 1).
float uniform(uint64_t seed, uint64_t position);

struct SamplingParams {
    float temperature = 1.0f;  // >= 0, finite
    uint32_t top_k = 0;        // 0: no limit
    float top_p = 1.0f;        // in (0, 1]
    uint64_t seed = 0;
};

// Draws one id from n logits (finite; n >= 1). `position` is the position the id will take. Throws
// muser::ConfigError for parameters out of range, NonFiniteError for a logit that is not finite.
uint32_t sample(const float* logits, size_t n, const SamplingParams& params, uint64_t position);

}  // namespace muser::contract
