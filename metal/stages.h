// The closures a token can have, with the reason for the broad barrier that stands before each.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace muser {

enum class Stage : uint8_t {
    embedding,
    entry_norm,
    attn_norm,
    qkvg,
    qk_norm,
    rope,
    swa_stage,
    kv_store,
    attention,
    store_attend,
    sigmoid_gate,
    output,
    post_attn_norm,
    ffn_norm,
    post_attn_ffn_norm,
    ffn_gate_up,
    silu,
    ffn_down,
    post_ffn_norm,
    post_ffn_next_norm,
    output_norm,
    copy_last_row,
    lm_head,
    softcap,
    argmax,
    count,
};

struct StageInfo {
    Stage stage;
    std::string_view name;
    // What the broad barrier before this closure orders. WAR on a buffer that the next layer
    // reuses is ordered by the same barriers, several closures earlier than it is needed.
    std::string_view barrier;
};

inline constexpr std::array<StageInfo, static_cast<size_t>(Stage::count)> kStages = {{
    {Stage::embedding, "embedding", "first closure of the command buffer: none"},
    {Stage::entry_norm, "entry_norm", "RAW: hidden was written by embedding"},
    {Stage::attn_norm, "attn_norm", "RAW: residual was written by the norm before"},
    {Stage::qkvg, "qkvg", "RAW: the products read the block form that the norm wrote"},
    {Stage::qk_norm, "qk_norm", "RAW and WAW: q and k are normalised where the products wrote"},
    {Stage::rope, "rope", "RAW and WAW: q and k are rotated where qk_norm wrote"},
    {Stage::swa_stage, "swa_stage",
     "RAW: k was rotated by rope; WAR: the layer before attended the one shadow"},
    {Stage::kv_store, "kv_store",
     "RAW: k was normalised or rotated; WAR: staging read the row this replaces"},
    {Stage::attention, "attention", "RAW: q, and K, V from the store or the staging"},
    {Stage::store_attend, "store_attend", "RAW: q and k were rotated or normalised"},
    {Stage::sigmoid_gate, "sigmoid_gate", "RAW and WAW: attention is gated in place"},
    {Stage::output, "output", "RAW: the block form of the gated attention"},
    {Stage::post_attn_norm, "post_attn_norm", "RAW: projected was written by output"},
    {Stage::ffn_norm, "ffn_norm", "RAW: residual was written by post_attn_norm"},
    {Stage::post_attn_ffn_norm, "post_attn_ffn_norm", "RAW: projected was written by output"},
    {Stage::ffn_gate_up, "ffn_gate_up", "RAW: the products read the block form of the norm"},
    {Stage::silu, "silu", "RAW: ffn_gate and ffn_up were written by the products"},
    {Stage::ffn_down, "ffn_down", "RAW: the block form of ffn_act"},
    {Stage::post_ffn_norm, "post_ffn_norm", "RAW: projected was written by ffn_down"},
    {Stage::post_ffn_next_norm, "post_ffn_next_norm", "RAW: projected was written by ffn_down"},
    {Stage::output_norm, "output_norm", "RAW: residual was written by post_ffn_norm"},
    {Stage::copy_last_row, "copy_last_row", "RAW: hidden was written by output_norm"},
    {Stage::lm_head, "lm_head", "RAW: the block form of the head's input"},
    {Stage::softcap, "softcap", "RAW and WAW: logits are capped where lm_head wrote"},
    {Stage::argmax, "argmax", "RAW: logits were capped"},
}};

constexpr std::string_view stage_name(Stage stage) {
    return kStages[static_cast<size_t>(stage)].name;
}

// A closure: a stage, in a layer or outside the layers.
struct Label {
    Stage stage;
    int layer = -1;
};

// "blk.3.attention", "lm_head".
inline std::string label_text(Label label) {
    std::string text = label.layer < 0 ? "" : "blk." + std::to_string(label.layer) + ".";
    return text += stage_name(label.stage);
}

// Barriers that name their resources, inside a closure or instead of a broad one.
struct BarrierSite {
    std::string_view name, resources, hazard, why;
};
inline constexpr BarrierSite kStoreToAttend{
    "store -> attend", "plane K, V", "RAW",
    "attention reads the row that the store of the same closure wrote"};
inline constexpr BarrierSite kQToAttend{
    "fused QK path -> attend", "q", "RAW",
    "attention reads the queries that the fused QK kernel normalised and rotated in place"};
inline constexpr BarrierSite kChunksToCombine{
    "chunk partials -> combine", "partials", "RAW",
    "the combine kernel reads every chunk's maximum, sum and output"};
inline constexpr BarrierSite kArgmaxPhases{"argmax phases", "partial maxima", "RAW",
                                           "the last phase reads each group's best logit"};
inline constexpr std::array kBarrierSites = {kStoreToAttend, kQToAttend, kChunksToCombine,
                                             kArgmaxPhases};

}  // namespace muser
