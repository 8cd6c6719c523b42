// One token of Muse Glimmer as closures, in model order.
#pragma once

#include <vector>

#include "metal/faults.h"
#include "metal/launch/attention.h"
#include "metal/schedule.h"

namespace muser {

struct LayerOnDevice {
    bool local = false;  // sliding window; else global
    bool rope = false;   // local layers only
    DeviceWeight attn_norm, attn_q, attn_k, attn_v, attn_gate, attn_q_norm, attn_k_norm;
    DeviceWeight attn_output, post_attention_norm;
    DeviceWeight ffn_norm, ffn_gate, ffn_up, ffn_down, post_ffw_norm;
    launch::Planes planes;
};

struct ModelOnDevice {
    model::Geometry geometry;
    DeviceWeight token_embd, output_norm, output;
    std::vector<LayerOnDevice> layers;
    launch::Heads heads{};
    ModelFaults faults;  // test switches
};

// The vectors a token passes through. One set, reused by every layer.
struct Activations {
    launch::Vector hidden;    // the embedding row, later output_norm's result
    launch::Vector residual;  // the stream that every layer adds to
    launch::Vector normed;    // input of the attention or FFN products
    launch::Vector q, k, v, gate;
    launch::Vector attention;  // all heads, then gated
    launch::Vector open_gate;  // test switch: a gate whose sigmoid is 1
    launch::Vector projected;  // attn_output's or ffn_down's result
    launch::Vector ffn_gate, ffn_up, ffn_act;
    launch::Vector head_input;  // the copied row (baseline)
    launch::Vector logits;
    const Buffer* flags = nullptr;  // one word per softcap group: a bare dot was not finite
    uint64_t flags_offset = 0;
    const Buffer* best = nullptr;  // each group's largest logit and its id (greedy lanes)
    launch::Partials partials;
    launch::Planes shadow;  // a wrapped ring in position order; shared by all local layers
};

// What a recording depends on besides the schedule: two tokens with the same phase and slot have
// the same recording.
struct Phase {
    bool wrapped = false;      // position >= window
    uint32_t ring_chunks = 1;  // bounds on 64-key chunks, in buckets
    uint32_t plane_chunks = 1;
    bool chooses = false;  // greedy: the largest logit's id goes to the slot behind this step's
    bool operator==(const Phase&) const = default;
};

// Encodes one token. `step` is the slot that holds its values.
void encode_token(GraphEncoder& g, const ModelOnDevice& model, const Activations& act,
                  const Schedule& schedule, const launch::Step& step, const Phase& phase);

// The same closures for `rows` tokens at once (a prompt chunk): products take all rows as columns,
// everything else runs row by row. Local layers always attend a staged copy, since the ring's
// later rows replace ones that earlier rows still see: act.shadow then holds window + rows - 1
// rows. `step` is the first of `rows` slots that follow each other; `head_rows` is how many of the
// last rows get logits. Rows must not exceed the window.
void encode_chunk(GraphEncoder& g, const ModelOnDevice& model, const Activations& act,
                  const Schedule& schedule, const launch::Step& step, const Phase& phase,
                  uint32_t rows, uint32_t head_rows);

// The schedule that a prompt chunk runs under: the given one's arithmetic, staged and unjoined.
Schedule chunk_schedule(Schedule schedule);

// The vectors that a closure leaves behind, by name ("" where there is one), for captures.
struct StageOutput {
    std::string_view name;
    launch::Vector vector;
};
std::vector<StageOutput> stage_outputs(Stage stage, const Activations& act,
                                       const Schedule& schedule);

}  // namespace muser
