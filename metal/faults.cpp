#include "metal/faults.h"

#include <cstring>

#include "errors.h"

namespace muser {

ModelFaults apply_model_faults(const std::map<std::string, int>& faults,
                               model::Geometry& geometry) {
    ModelFaults seeded;
    for (const auto& [name, value] : faults) {
        if (value == 0) continue;
        if (name == "drop_softcap") {
            // cap * tanh(x / cap) is x, to the last bit or two, far below the cap.
            geometry.softcap = 1e20F;
        } else if (name == "drop_multiplier") {
            geometry.logit_scale = 1.0F;
        } else if (name == "swap_order") {
            // scale * (cap * tanh(dot / cap)), written as the kernel's own form.
            geometry.softcap *= geometry.logit_scale;
        } else if (name == "post_norm_eps") {
            geometry.post_eps = 1e-5F;
        } else if (name == "window_off_by_one") {
            ++geometry.window;
        } else if (name == "skip_gate") {
            seeded.skip_gate = true;
        } else if (name == "skip_embedding_norm") {
            seeded.skip_embedding_norm = true;
        } else if (name == "rope_on_global") {
            seeded.rope_on_global = true;
        } else if (name == "half_split_pairs") {
            seeded.half_split_pairs = true;
        } else if (name == "q_scale_twice") {
            seeded.q_scale_twice = true;
        } else if (!name.starts_with("omit_barrier_") && !name.starts_with("device_") &&
                   name != "untracked" && name != "split_closures") {
            throw ConfigError("no test switch is called '" + name + "'", {{"fault", name}});
        }
    }
    return seeded;
}

std::vector<std::byte> half_split_rows(const model::Weight& weight, uint32_t head_dim) {
    const uint64_t row = weight.row_bytes();
    std::vector<std::byte> out(weight.bytes);
    for (uint64_t head = 0; head < weight.rows; head += head_dim) {
        for (uint32_t i = 0; i < head_dim / 2; ++i) {
            for (uint32_t half = 0; half < 2; ++half) {
                std::memcpy(out.data() + (head + 2 * i + half) * row,
                            weight.data + (head + i + half * (head_dim / 2)) * row, row);
            }
        }
    }
    return out;
}

std::vector<std::byte> squared(const model::Weight& weight) {
    std::vector<std::byte> out(weight.bytes);
    std::vector<float> values(weight.cols);
    std::memcpy(values.data(), weight.data, weight.bytes);
    for (float& value : values) value *= value;
    std::memcpy(out.data(), values.data(), weight.bytes);
    return out;
}

}  // namespace muser
