#include "metal/recording.h"

#include <charconv>

namespace muser {
namespace {

struct Parameter {
    std::string_view name, access;
};
struct Parameters {
    std::string_view prefix;  // of the kernel's name; the first that fits counts
    std::vector<Parameter> list;
};

const std::vector<Parameters>& table() {
    static const std::vector<Parameters> kTable = {
        {"embed_", {{"step", "r"}, {"table", "r"}, {"hidden", "w"}}},
        {"rms_norm_f32", {{"x", "r"}, {"y", "w"}}},
        {"rms_norm_add_norm_",
         {{"x", "r"},
          {"post weight", "r"},
          {"residual", "rw"},
          {"next weight", "r"},
          {"y", "w"},
          {"block form", "w"}}},
        {"rms_norm_add_f32", {{"x", "r"}, {"weight", "r"}, {"residual", "rw"}}},
        {"rms_norm_mul_", {{"x", "r"}, {"weight", "r"}, {"y", "w"}, {"block form", "w"}}},
        {"head_norm_f32", {{"weight", "r"}, {"x", "rw"}}},
        {"rope_f32", {{"step", "r"}, {"x", "rw"}}},
        {"kv_store_",
         {{"step", "r"},
          {"k", "r"},
          {"v", "r"},
          {"K", "rw"},
          {"V", "rw"},
          {"journal K", "w"},
          {"journal V", "w"}}},
        {"swa_stage_",
         {{"step", "r"},
          {"k", "r"},
          {"v", "r"},
          {"ring K", "r"},
          {"ring V", "r"},
          {"shadow K", "w"},
          {"shadow V", "w"}}},
        {"attend_chunks_", {{"step", "r"}, {"q", "r"}, {"K", "r"}, {"V", "r"}, {"partials", "w"}}},
        {"attend_combine_gate_",
         {{"step", "r"},
          {"partials", "r"},
          {"gate", "r"},
          {"attention", "w"},
          {"block form", "w"}}},
        {"attend_combine_", {{"step", "r"}, {"partials", "r"}, {"attention", "w"}}},
        {"qk_norm_rope_store_",
         {{"step", "r"},
          {"q weight", "r"},
          {"k weight", "r"},
          {"q", "rw"},
          {"k", "r"},
          {"v", "r"},
          {"K", "rw"},
          {"V", "rw"},
          {"journal K", "w"},
          {"journal V", "w"}}},
        {"mul_mv_silu_",
         {{"gate weight", "r"},
          {"up weight", "r"},
          {"block form", "r"},
          {"y", "w"},
          {"block form of y", "w"}}},
        {"mul_mv_", {{"weight", "r"}, {"x", "r"}, {"y", "w"}}},
        {"gate_b16", {{"gate", "r"}, {"attention", "rw"}, {"block form", "w"}}},
        {"silu_mul_b16", {{"gate", "r"}, {"up", "r"}, {"y", "w"}, {"block form", "w"}}},
        {"copy_row_b16",
         {{"x", "r"}, {"block form", "r"}, {"x copy", "w"}, {"block form copy", "w"}}},
        {"argmax_groups_f32", {{"logits", "r"}, {"best", "w"}}},
        {"argmax_final_f32", {{"best", "r"}, {"token", "w"}}},
        {"softcap_f32", {{"logits", "rw"}, {"flags", "w"}}},
        {"probe_u32", {{"rows", "r"}, {"results", "w"}}},
    };
    return kTable;
}

std::vector<std::string_view> column(std::string_view kernel, std::string_view Parameter::*which) {
    std::vector<std::string_view> out;
    for (const Parameters& parameters : table()) {
        if (!kernel.starts_with(parameters.prefix)) continue;
        for (const Parameter& parameter : parameters.list) out.push_back(parameter.*which);
        break;
    }
    return out;
}

}  // namespace

std::vector<std::string_view> argument_names(std::string_view kernel) {
    return column(kernel, &Parameter::name);
}

std::vector<std::string_view> argument_accesses(std::string_view kernel) {
    return column(kernel, &Parameter::access);
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
