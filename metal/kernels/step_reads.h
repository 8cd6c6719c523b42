// Which bytes of the step slot a kernel reads, for launchers to declare. Host only; the emulator's
// tests hold it against what the kernels touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#ifndef MUSER_HOST_COMPILER
#define MUSER_HOST_COMPILER
#endif
#include "metal/kernels/args.h"

namespace muser::kernels {

struct StepRead {
    uint32_t offset, bytes;
    bool if_overwrite = false;  // only where StepValues::overwrite is 1
};

struct StepReadFacts {
    uint32_t view = MUSER_VIEW_PLANE;
    uint32_t head_dim = 0;
    bool journal = false;
    bool rope = true;
};

inline uint32_t view_offset(uint32_t view) {
    constexpr size_t kOffsets[] = {offsetof(StepValues, ring), offsetof(StepValues, plane),
                                   offsetof(StepValues, shadow)};
    return static_cast<uint32_t>(kOffsets[view]);
}

// Ascending. Empty for kernels without a step buffer.
inline std::vector<StepRead> step_reads(std::string_view kernel, const StepReadFacts& facts) {
    const uint32_t view = view_offset(facts.view);
    const auto word = [](size_t offset) { return StepRead{static_cast<uint32_t>(offset), 4}; };
    const StepRead kept{offsetof(StepValues, journal_row), 4, true};
    const StepRead cos{offsetof(StepValues, rope_cos), 2 * facts.head_dim};
    const StepRead sin{offsetof(StepValues, rope_sin), 2 * facts.head_dim};
    std::vector<StepRead> out;
    if (kernel.starts_with("embed_")) {
        out = {word(offsetof(StepValues, token)),
               {offsetof(StepValues, device_token), 8}};  // and `chained`
    } else if (kernel == "rope_f32") {
        out = {cos, sin};
    } else if (kernel.starts_with("kv_store_") || kernel.starts_with("qk_norm_rope_store_")) {
        if (facts.journal) out = {kept, word(offsetof(StepValues, overwrite))};
        out.push_back(word(view + offsetof(KvView, write_row)));
        if (kernel.starts_with("qk_") && facts.rope) out.insert(out.end(), {cos, sin});
    } else if (kernel.starts_with("swa_stage_")) {
        const uint32_t ring = offsetof(StepValues, ring);
        out = {word(ring + offsetof(KvView, first_row)), word(ring + offsetof(KvView, older))};
    } else if (kernel.starts_with("attend_chunks_")) {
        out = {{view, 12}, word(view + offsetof(KvView, chunks))};  // first position, row, count
    } else if (kernel.starts_with("attend_combine_")) {
        out = {word(view + offsetof(KvView, chunks))};
    }
    return out;
}

}  // namespace muser::kernels
