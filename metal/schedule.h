// The schedules: which closures a token is cut into and which kernels they use, as one table.
//
// A schedule is a row of enums, one per question that two schedules may answer differently. The
// token graph has at most one branch per column. Everything is chosen once, at load.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace muser {

// The 2 * layers norm boundaries: residual add, then the next block's norm.
enum class Boundary {
    split,      // two closures, as published
    fused,      // one kernel with the contract's reduction: exact
    fused_4sg,  // one kernel with a four-group reduction of 128 partials: not exact
};
// The norms that stand alone in attention and output positions.
enum class LoneNorm { contract, four_group };
enum class HeadInput { copied, direct };      // lm_head reads a copied row, or output_norm's result
enum class Attention { per_head, gqa };       // gqa: one pass over K, V serves a KV head's queries
enum class WrappedRing { staged, in_place };  // attend a shadow in position order, or the ring
enum class Publish {
    apart,   // kv_store and attention are two closures
    joined,  // one closure, ordered by a targeted K/V barrier
};
enum class QkPath { apart, fused };         // norm, RoPE and store of Q and K in one kernel
enum class GatePath { apart, in_combine };  // sigmoid gate in attention's combine kernel
enum class FfnPath { apart, fused };        // SiLU in the epilogue of the gate and up products

struct Schedule {
    std::string_view name;
    bool exact;
    Boundary boundary;
    LoneNorm lone_norm;
    HeadInput head_input;
    Attention attention;
    WrappedRing ring;
    Publish publish;
    QkPath qk;
    GatePath gate;
    FfnPath ffn;
    std::string_view differs;  // from the one above it, in words
};

// Query heads that share a KV head: how many the schedule's attention serves; 0: any number.
uint32_t max_queries_per_kv_head(const Schedule& schedule);

// In the order of the ladder, `baseline` first.
std::span<const Schedule> schedules();

// ConfigError naming the schedules there are.
const Schedule& find_schedule(std::string_view name);

}  // namespace muser
