// One token of Muse Glimmer, top to bottom. See docs/graph.md for the closures and their counts.
#import "metal/token_graph.h"

#import "metal/launch/norm.h"
#import "metal/launch/pointwise.h"
#import "metal/launch/product.h"

namespace muser {

using launch::Planes;
using launch::Step;
using launch::Vector;

namespace {

// Encodes the layers of one token; the arguments of encode_token, held together.
struct TokenGraph {
    GraphEncoder& g;
    const ModelOnDevice& model;
    const Activations& act;
    const Schedule& schedule;
    const Step& step;
    const Phase& phase;

    const model::Geometry& geometry() const { return model.geometry; }
    bool fused_boundaries() const { return schedule.boundary != Boundary::split; }

    void token() const {
        g.closure({Stage::embedding},
                  [&] { launch::embed(g, step, model.token_embd, act.hidden); });
        g.closure({Stage::entry_norm},
                  [&] { launch::rms_norm(g, act.hidden, act.residual, geometry().eps); });
        for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) layer(i);
        head();
    }

    void layer(int i) const {
        const LayerOnDevice& layer = model.layers[static_cast<size_t>(i)];
        // A fused boundary has made this norm at the end of the layer before.
        if (i == 0 || !fused_boundaries()) {
            g.closure({Stage::attn_norm, i}, [&] {
                launch::rms_norm_mul(g, schedule.lone_norm == LoneNorm::four_group, act.residual,
                                     layer.attn_norm, act.normed, geometry().eps);
            });
        }
        g.closure({Stage::qkvg, i}, [&] {
            launch::mul_mv(g, layer.attn_q, act.normed, act.q);
            launch::mul_mv(g, layer.attn_k, act.normed, act.k);
            launch::mul_mv(g, layer.attn_v, act.normed, act.v);
            launch::mul_mv(g, layer.attn_gate, act.normed, act.gate);
        });
        if (schedule.qk == QkPath::apart) {
            g.closure({Stage::qk_norm, i}, [&] {
                const uint32_t dim = geometry().head_dim;
                launch::head_norm(g, layer.attn_q_norm, act.q, dim, geometry().eps);
                launch::head_norm(g, layer.attn_k_norm, act.k, dim, geometry().eps);
            });
            if (layer.local) {
                g.closure({Stage::rope, i}, [&] {
                    launch::rope(g, step, act.q, geometry().head_dim);
                    launch::rope(g, step, act.k, geometry().head_dim);
                });
            }
        }
        attention(i, layer);
        if (schedule.gate == GatePath::apart) {
            g.closure({Stage::sigmoid_gate, i}, [&] { launch::gate(g, act.gate, act.attention); });
        }
        g.closure({Stage::output, i},
                  [&] { launch::mul_mv(g, layer.attn_output, act.attention, act.projected); });
        attention_boundary(i, layer);
        ffn(i, layer);
        ffn_boundary(i, layer);
    }

    // Store K and V, and attend. Where the ring has wrapped, storing first would overwrite a row
    // that a staged copy still needs, so a staging schedule attends before it stores; read in
    // place, that row (position - window) is no longer visible, and the store comes first.
    void attention(int i, const LayerOnDevice& layer) const {
        const auto store = [&] {
            if (schedule.qk == QkPath::fused) {
                launch::qk_norm_rope_store(g, step, model.heads, layer.attn_q_norm,
                                           layer.attn_k_norm, act.q, act.k, act.v, geometry().eps,
                                           layer.local, layer.planes);
            } else {
                launch::kv_store(g, step, act.k, act.v, layer.planes);
            }
        };
        const bool staged = layer.local && phase.wrapped && schedule.ring == WrappedRing::staged;
        if (schedule.publish == Publish::joined) {
            g.closure({Stage::store_attend, i}, [&] {
                store();
                g.order(kStoreToAttend, {layer.planes.k, layer.planes.v});
                // The fused QK path also wrote q, which is no plane: ordered by the same site.
                if (schedule.qk == QkPath::fused) g.order(kQToAttend, {act.q.values});
                attend(layer, layer.planes);
            });
        } else if (staged) {
            g.closure({Stage::swa_stage, i},
                      [&] { launch::swa_stage(g, step, act.k, act.v, layer.planes, act.shadow); });
            g.closure({Stage::attention, i}, [&] { attend(layer, act.shadow); });
            g.closure({Stage::kv_store, i}, store);
        } else {
            g.closure({Stage::kv_store, i}, store);
            g.closure({Stage::attention, i}, [&] { attend(layer, layer.planes); });
        }
    }

    void attend(const LayerOnDevice& layer, const Planes& from) const {
        const uint32_t bucket = layer.local ? phase.ring_chunks : phase.plane_chunks;
        launch::attend_chunks(g, schedule.attention == Attention::gqa, step, model.heads, act.q,
                              from, act.partials, bucket);
        g.order(kChunksToCombine, {act.partials});
        if (schedule.gate == GatePath::in_combine) {
            launch::attend_combine_gate(g, step, model.heads, from, act.partials, bucket, act.gate,
                                        act.attention);
        } else {
            launch::attend_combine(g, step, model.heads, from, act.partials, bucket, act.attention);
        }
    }

    // residual += post-norm of the attention output; then the FFN's own norm.
    void attention_boundary(int i, const LayerOnDevice& layer) const {
        if (fused_boundaries()) {
            g.closure({Stage::post_attn_ffn_norm, i},
                      [&] { boundary(layer.post_attention_norm, layer.ffn_norm, act.normed); });
            return;
        }
        g.closure({Stage::post_attn_norm, i}, [&] {
            launch::rms_norm_add(g, act.projected, layer.post_attention_norm, act.residual,
                                 geometry().post_eps);
        });
        g.closure({Stage::ffn_norm, i}, [&] {
            launch::rms_norm_mul(g, false, act.residual, layer.ffn_norm, act.normed,
                                 geometry().eps);
        });
    }

    void ffn(int i, const LayerOnDevice& layer) const {
        if (schedule.ffn == FfnPath::fused) {
            g.closure({Stage::ffn_gate_up, i}, [&] {
                launch::mul_mv_silu(g, layer.ffn_gate, layer.ffn_up, act.normed, act.ffn_act);
            });
        } else {
            g.closure({Stage::ffn_gate_up, i}, [&] {
                launch::mul_mv(g, layer.ffn_gate, act.normed, act.ffn_gate);
                launch::mul_mv(g, layer.ffn_up, act.normed, act.ffn_up);
            });
            g.closure({Stage::silu, i},
                      [&] { launch::silu_mul(g, act.ffn_gate, act.ffn_up, act.ffn_act); });
        }
        g.closure({Stage::ffn_down, i},
                  [&] { launch::mul_mv(g, layer.ffn_down, act.ffn_act, act.projected); });
    }

    // residual += post-norm of the FFN output; fused, with the norm of the next layer or the head.
    void ffn_boundary(int i, const LayerOnDevice& layer) const {
        if (!fused_boundaries()) {
            g.closure({Stage::post_ffn_norm, i}, [&] {
                launch::rms_norm_add(g, act.projected, layer.post_ffw_norm, act.residual,
                                     geometry().post_eps);
            });
            return;
        }
        const auto next = static_cast<size_t>(i) + 1;
        const bool last = next == model.layers.size();
        g.closure({Stage::post_ffn_next_norm, i}, [&] {
            boundary(layer.post_ffw_norm, last ? model.output_norm : model.layers[next].attn_norm,
                     last ? act.hidden : act.normed);
        });
    }

    void boundary(const DeviceWeight& post, const DeviceWeight& next, const Vector& out) const {
        launch::rms_norm_add_norm(g, schedule.boundary == Boundary::fused_4sg, act.projected, post,
                                  geometry().post_eps, act.residual, next, geometry().eps, out);
    }

    void head() const {
        if (!fused_boundaries()) {
            g.closure({Stage::output_norm}, [&] {
                launch::rms_norm_mul(g, schedule.lone_norm == LoneNorm::four_group, act.residual,
                                     model.output_norm, act.hidden, geometry().eps);
            });
        }
        Vector input = act.hidden;
        if (schedule.head_input == HeadInput::copied) {
            g.closure({Stage::copy_last_row},
                      [&] { launch::copy_row(g, act.hidden, act.head_input); });
            input = act.head_input;
        }
        g.closure({Stage::lm_head}, [&] { launch::mul_mv(g, model.output, input, act.logits); });
        g.closure({Stage::softcap}, [&] {
            launch::softcap(g, act.logits, act.flags, act.flags_offset, geometry().logit_scale,
                            geometry().softcap);
        });
    }
};

}  // namespace

void encode_token(GraphEncoder& g, const ModelOnDevice& model, const Activations& act,
                  const Schedule& schedule, const Step& step, const Phase& phase) {
    TokenGraph{g, model, act, schedule, step, phase}.token();
}

std::vector<StageOutput> stage_outputs(Stage stage, const Activations& act,
                                       const Schedule& schedule) {
    switch (stage) {
        case Stage::embedding:
            return {{"", act.hidden}};
        case Stage::entry_norm:
            return {{"", act.residual}};
        case Stage::attn_norm:
            return {{"", act.normed}};
        case Stage::qkvg:
            return {{"q", act.q}, {"k", act.k}, {"v", act.v}, {"gate", act.gate}};
        case Stage::qk_norm:
        case Stage::rope:
            return {{"q", act.q}, {"k", act.k}};
        case Stage::store_attend:
        case Stage::attention:
        case Stage::sigmoid_gate:
            return {{"", act.attention}};
        case Stage::output:
        case Stage::ffn_down:
            return {{"", act.projected}};
        case Stage::post_attn_norm:
        case Stage::post_ffn_norm:
            return {{"", act.residual}};
        case Stage::ffn_norm:
            return {{"", act.normed}};
        case Stage::post_attn_ffn_norm:
        case Stage::post_ffn_next_norm:
            return {{"residual", act.residual}, {"normed", act.normed}};
        case Stage::ffn_gate_up:
            if (schedule.ffn == FfnPath::fused) return {{"", act.ffn_act}};
            return {{"gate", act.ffn_gate}, {"up", act.ffn_up}};
        case Stage::silu:
            return {{"", act.ffn_act}};
        case Stage::output_norm:
            return {{"", act.hidden}};
        case Stage::copy_last_row:
            return {{"", act.head_input}};
        case Stage::lm_head:
        case Stage::softcap:
            return {{"", act.logits}};
        case Stage::swa_stage:
        case Stage::kv_store:
        case Stage::argmax:
        case Stage::count:
            break;
    }
    return {};
}

}  // namespace muser
