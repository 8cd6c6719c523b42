#include "metal/schedule.h"

#include <array>
#include <string>

#include "errors.h"
#include "metal/kernels/launch_shapes.h"

namespace muser {
namespace {

// clang-format off
constexpr std::array kSchedules = {
    Schedule{"baseline", true, Boundary::split, LoneNorm::contract, HeadInput::copied,
             Attention::per_head, WrappedRing::staged, Publish::apart, QkPath::apart,
             GatePath::apart, FfnPath::apart,
             "the published production graph: the reference"},
    Schedule{"production", true, Boundary::split, LoneNorm::contract, HeadInput::direct,
             Attention::per_head, WrappedRing::staged, Publish::apart, QkPath::apart,
             GatePath::apart, FfnPath::apart,
             "the head reads output_norm's result; no row is copied"},
    Schedule{"dual_norm_4sg", false, Boundary::fused_4sg, LoneNorm::contract, HeadInput::direct,
             Attention::per_head, WrappedRing::staged, Publish::apart, QkPath::apart,
             GatePath::apart, FfnPath::apart,
             "norm boundaries fused, with a reduction over 128 partials"},
    Schedule{"dual_norm", true, Boundary::fused, LoneNorm::contract, HeadInput::direct,
             Attention::per_head, WrappedRing::staged, Publish::apart, QkPath::apart,
             GatePath::apart, FfnPath::apart,
             "the same fusion with the contract's reduction"},
    Schedule{"gqa", true, Boundary::fused, LoneNorm::contract, HeadInput::direct,
             Attention::gqa, WrappedRing::staged, Publish::apart, QkPath::apart,
             GatePath::apart, FfnPath::apart,
             "one pass over K and V serves all query heads of a KV head"},
    Schedule{"ring", true, Boundary::fused, LoneNorm::contract, HeadInput::direct,
             Attention::gqa, WrappedRing::in_place, Publish::apart, QkPath::apart,
             GatePath::apart, FfnPath::apart,
             "a wrapped ring is attended in place; nothing is staged"},
    Schedule{"joined", true, Boundary::fused, LoneNorm::contract, HeadInput::direct,
             Attention::gqa, WrappedRing::in_place, Publish::joined, QkPath::apart,
             GatePath::apart, FfnPath::apart,
             "store and attention in one closure, a targeted K/V barrier between them"},
    Schedule{"lean", true, Boundary::fused, LoneNorm::contract, HeadInput::direct,
             Attention::gqa, WrappedRing::in_place, Publish::joined, QkPath::fused,
             GatePath::in_combine, FfnPath::fused,
             "QK norm, RoPE and store in one kernel; gate in the combine; SiLU in the products"},
    Schedule{"legacy", false, Boundary::fused_4sg, LoneNorm::four_group, HeadInput::direct,
             Attention::per_head, WrappedRing::in_place, Publish::joined, QkPath::apart,
             GatePath::apart, FfnPath::apart,
             "the ancestor: joined, in place, every norm over 128 partials"},
    Schedule{"hybrid", false, Boundary::fused_4sg, LoneNorm::four_group, HeadInput::direct,
             Attention::per_head, WrappedRing::staged, Publish::apart, QkPath::apart,
             GatePath::apart, FfnPath::apart,
             "production's kernels and staging with legacy's norms"},
};
// clang-format on

}  // namespace

std::span<const Schedule> schedules() { return kSchedules; }

uint32_t max_queries_per_kv_head(const Schedule& schedule) {
    return schedule.attention == Attention::gqa ? MUSER_SHAPE_GQA_MAX_QUERIES : 0;
}

const Schedule& find_schedule(std::string_view name) {
    std::string known;
    for (const Schedule& schedule : kSchedules) {
        if (schedule.name == name) return schedule;
        known += known.empty() ? "" : ", ";
        known += schedule.name;
    }
    throw ConfigError("unknown schedule '" + std::string(name) + "'; there are " + known,
                      {{"schedule", std::string(name)}, {"allowed", known}});
}

}  // namespace muser
