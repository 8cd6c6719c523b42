// Test switches: single mistakes that ports of this model have made, seeded on purpose so that
// tests can show which gates see them. EngineConfig::faults names them; none is set in use.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/geometry.h"
#include "model/model_weights.h"

namespace muser {

struct ModelFaults {
    bool skip_gate = false;            // attention reaches the output product ungated
    bool skip_embedding_norm = false;  // the raw embedding row starts the residual
    bool rope_on_global = false;       // the first global layer rotates too
    bool half_split_pairs = false;     // RoPE pairs (i, i + n/2) instead of (2i, 2i + 1)
    bool q_scale_twice = false;        // the Q factor of attn_q_norm is applied again
};

// Seeds the faults that are numbers of the geometry: drop_softcap, drop_multiplier, swap_order,
// post_norm_eps, window_off_by_one. Returns the others. ConfigError for a name that is none.
ModelFaults apply_model_faults(const std::map<std::string, int>& faults, model::Geometry& geometry);

// Changed copies of weights. Interleaved pairs over rows in half-split order are half-split pairs:
// scores do not depend on the order of a head's dimensions.
std::vector<std::byte> half_split_rows(const model::Weight& weight, uint32_t head_dim);
std::vector<std::byte> squared(const model::Weight& weight);

}  // namespace muser
