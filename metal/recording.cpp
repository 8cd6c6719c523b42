#include "metal/recording.h"

#include <array>
#include <charconv>

namespace muser {
namespace {

struct Names {
    std::string_view prefix;  // of the kernel's name; the first that fits counts
    std::vector<std::string_view> arguments;
};

const std::vector<Names>& table() {
    static const std::vector<Names> kTable = {
        {"embed_", {"step", "table", "hidden"}},
        {"rms_norm_f32", {"x", "y"}},
        {"rms_norm_add_norm_", {"x", "post weight", "residual", "next weight", "y", "block form"}},
        {"rms_norm_add_f32", {"x", "weight", "residual"}},
        {"rms_norm_mul_", {"x", "weight", "y", "block form"}},
        {"head_norm_f32", {"weight", "x"}},
        {"rope_f32", {"step", "x"}},
        {"kv_store_", {"step", "k", "v", "K", "V", "journal K", "journal V"}},
        {"swa_stage_", {"step", "k", "v", "ring K", "ring V", "shadow K", "shadow V"}},
        {"attend_chunks_", {"step", "q", "K", "V", "partials"}},
        {"attend_combine_gate_", {"step", "partials", "gate", "attention", "block form"}},
        {"attend_combine_", {"step", "partials", "attention"}},
        {"qk_norm_rope_store_",
         {"step", "q weight", "k weight", "q", "k", "v", "K", "V", "journal K", "journal V"}},
        {"mul_mv_silu_", {"gate weight", "up weight", "block form", "y", "block form of y"}},
        {"mul_mv_", {"weight", "x", "y"}},
        {"gate_b16", {"gate", "attention", "block form"}},
        {"silu_mul_b16", {"gate", "up", "y", "block form"}},
        {"copy_row_b16", {"x", "block form", "x copy", "block form copy"}},
        {"argmax_groups_f32", {"logits", "best"}},
        {"argmax_final_f32", {"best", "token"}},
        {"softcap_f32", {"logits", "flags"}},
        {"probe_u32", {"rows", "results"}},
    };
    return kTable;
}

}  // namespace

std::vector<std::string_view> argument_names(std::string_view kernel) {
    for (const Names& names : table()) {
        if (kernel.starts_with(names.prefix)) return names.arguments;
    }
    return {};
}

int layer_of(std::string_view label) {
    constexpr std::string_view kLayer = "blk.";
    if (!label.starts_with(kLayer)) return -1;
    label.remove_prefix(kLayer.size());
    int layer = -1;
    std::from_chars(label.data(), label.data() + label.size(), layer);
    return layer;
}

}  // namespace muser
