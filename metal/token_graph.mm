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

// Encodes the layers of one token, or of a prompt chunk; the arguments of encode_chunk, held
// together. A decode step is a chunk of one row.
struct TokenGraph {
    GraphEncoder& g;
    const ModelOnDevice& model;
    const Activations& act;
    const Schedule& schedule;
    const Step& step;
    const Phase& phase;
    uint32_t rows = 1;
    uint32_t head_rows = 1;

    // What is not a product runs row by row; the rows of a closure are independent.
    template <class Body>
    void each_row(Body&& body) const {
        for (uint32_t r = 0; r < rows; ++r) body(r);
    }
    Step step_of(uint32_t row) const {
        return {step.buffer, step.offset + uint64_t{row} * MUSER_STEP_BYTES, step.chained};
    }
    void product(const DeviceWeight& weight, const Vector& x, const Vector& y) const {
        launch::mul_mv(g, weight, x, y, rows);
    }

    const model::Geometry& geometry() const { return model.geometry; }
    bool fused_boundaries() const { return schedule.boundary != Boundary::split; }

    void token() const {
        g.closure({Stage::embedding}, [&] {
            each_row([&](uint32_t r) {
                launch::embed(g, step_of(r), model.token_embd, act.hidden.at(r));
            });
        });
        g.closure({Stage::entry_norm}, [&] { each_row([&](uint32_t r) { entry_norm(r); }); });
        for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) layer(i);
        head();
    }

    void entry_norm(uint32_t r) const {
        if (model.faults.skip_embedding_norm) {
            launch::copy_row(g, plain(act.hidden.at(r)), act.residual.at(r));
        } else {
            launch::rms_norm(g, act.hidden.at(r), act.residual.at(r), geometry().eps);
        }
    }
    // The f32 vector alone, for a consumer that leaves the block form to others.
    static Vector plain(Vector vector) {
        vector.block_form = nullptr;
        return vector;
    }

    void layer(int i) const {
        const LayerOnDevice& layer = model.layers[static_cast<size_t>(i)];
        // A fused boundary has made this norm at the end of the layer before.
        if (i == 0 || !fused_boundaries()) {
            g.closure({Stage::attn_norm, i}, [&] { lone_norm(layer.attn_norm, act.normed); });
        }
        g.closure({Stage::qkvg, i}, [&] {
            product(layer.attn_q, act.normed, act.q);
            product(layer.attn_k, act.normed, act.k);
            product(layer.attn_v, act.normed, act.v);
            product(layer.attn_gate, act.normed, act.gate);
        });
        if (schedule.qk == QkPath::apart) {
            g.closure({Stage::qk_norm, i},
                      [&] { each_row([&](uint32_t r) { qk_norm(layer, r); }); });
            if (layer.rope) {
                g.closure({Stage::rope, i}, [&] { each_row([&](uint32_t r) { rope(r); }); });
            }
        }
        attention(i, layer);
        if (schedule.gate == GatePath::apart) {
            g.closure({Stage::sigmoid_gate, i}, [&] {
                each_row([&](uint32_t r) { launch::gate(g, gate_of(r), act.attention.at(r)); });
            });
        }
        g.closure({Stage::output, i},
                  [&] { product(layer.attn_output, act.attention, act.projected); });
        attention_boundary(i, layer);
        ffn(i, layer);
        ffn_boundary(i, layer);
    }

    // A norm that no residual add precedes: the first layer's, and the head's when unfused.
    void lone_norm(const DeviceWeight& weight, const Vector& out) const {
        each_row([&](uint32_t r) {
            launch::rms_norm_mul(g, schedule.lone_norm == LoneNorm::four_group, act.residual.at(r),
                                 weight, out.at(r), geometry().eps);
        });
    }

    void qk_norm(const LayerOnDevice& layer, uint32_t r) const {
        const uint32_t dim = geometry().head_dim;
        launch::head_norm(g, layer.attn_q_norm, act.q.at(r), dim, geometry().eps);
        launch::head_norm(g, layer.attn_k_norm, act.k.at(r), dim, geometry().eps);
    }

    void rope(uint32_t r) const {
        launch::rope(g, step_of(r), act.q.at(r), geometry().head_dim);
        launch::rope(g, step_of(r), act.k.at(r), geometry().head_dim);
    }

    // Store K and V, and attend. Where the ring has wrapped, storing first would overwrite a row
    // that a staged copy still needs, so a staging schedule attends before it stores; read in
    // place, that row (position - window) is no longer visible, and the store comes first.
    void attention(int i, const LayerOnDevice& layer) const {
        const auto store = [&] {
            each_row([&](uint32_t r) { this->store(layer, layer.planes, r); });
        };
        const auto attend_from = [&](const Planes& from) {
            each_row([&](uint32_t r) { attend_chunks(layer, from, r); });
            g.order(kChunksToCombine, {act.partials.buffer});
            each_row([&](uint32_t r) { combine(layer, from, r); });
        };
        const bool staged =
            layer.local && schedule.ring == WrappedRing::staged && (phase.wrapped || rows > 1);
        if (schedule.publish == Publish::joined) {
            g.closure({Stage::store_attend, i}, [&] {
                store();
                g.order(kStoreToAttend, {layer.planes.k, layer.planes.v});
                // The fused QK path also wrote q, which is no plane: a barrier of its own.
                if (schedule.qk == QkPath::fused) g.order(kQToAttend, {act.q.values});
                attend_from(layer.planes);
            });
        } else if (staged) {
            g.closure({Stage::swa_stage, i}, [&] {
                launch::swa_stage(g, step, act.k, act.v, layer.planes, act.shadow);
                // Further rows of a chunk follow the first in the shadow.
                for (uint32_t r = 1; r < rows; ++r) this->store(layer, act.shadow, r);
            });
            g.closure({Stage::attention, i}, [&] { attend_from(act.shadow); });
            g.closure({Stage::kv_store, i}, store);
        } else {
            g.closure({Stage::kv_store, i}, store);
            g.closure({Stage::attention, i}, [&] { attend_from(layer.planes); });
        }
    }

    void store(const LayerOnDevice& layer, const Planes& to, uint32_t r) const {
        if (schedule.qk == QkPath::fused) {
            launch::qk_norm_rope_store(g, step_of(r), model.heads, layer.attn_q_norm,
                                       layer.attn_k_norm, act.q.at(r), act.k.at(r), act.v.at(r),
                                       geometry().eps, layer.rope, to);
        } else {
            launch::kv_store(g, step_of(r), act.k.at(r), act.v.at(r), to);
        }
    }

    Vector gate_of(uint32_t r) const {
        return model.faults.skip_gate ? act.open_gate : act.gate.at(r);
    }

    uint32_t chunk_bound(const LayerOnDevice& layer) const {
        return layer.local ? phase.ring_chunks : phase.plane_chunks;
    }

    void attend_chunks(const LayerOnDevice& layer, const Planes& from, uint32_t r) const {
        launch::attend_chunks(g, schedule.attention == Attention::gqa, step_of(r), model.heads,
                              act.q.at(r), from, act.partials.at(r), chunk_bound(layer));
    }

    void combine(const LayerOnDevice& layer, const Planes& from, uint32_t r) const {
        if (schedule.gate == GatePath::in_combine) {
            launch::attend_combine_gate(g, step_of(r), model.heads, from, act.partials.at(r),
                                        chunk_bound(layer), gate_of(r), act.attention.at(r));
        } else {
            launch::attend_combine(g, step_of(r), model.heads, from, act.partials.at(r),
                                   chunk_bound(layer), act.attention.at(r));
        }
    }

    // residual += post-norm of the attention output; then the FFN's own norm.
    void attention_boundary(int i, const LayerOnDevice& layer) const {
        if (fused_boundaries()) {
            g.closure({Stage::post_attn_ffn_norm, i},
                      [&] { boundary(layer.post_attention_norm, layer.ffn_norm, act.normed); });
            return;
        }
        g.closure({Stage::post_attn_norm, i}, [&] { post_norm(layer.post_attention_norm); });
        g.closure({Stage::ffn_norm, i}, [&] {
            each_row([&](uint32_t r) {
                launch::rms_norm_mul(g, false, act.residual.at(r), layer.ffn_norm, act.normed.at(r),
                                     geometry().eps);
            });
        });
    }

    void post_norm(const DeviceWeight& weight) const {
        each_row([&](uint32_t r) {
            launch::rms_norm_add(g, act.projected.at(r), weight, act.residual.at(r),
                                 geometry().post_eps);
        });
    }

    void ffn(int i, const LayerOnDevice& layer) const {
        // Float weights, or two types, have no fused kernel; the plan tells which layers took
        // which.
        if (schedule.ffn == FfnPath::fused && launch::can_fuse_silu(layer.ffn_gate, layer.ffn_up)) {
            g.closure({Stage::ffn_gate_up, i}, [&] {
                launch::mul_mv_silu(g, layer.ffn_gate, layer.ffn_up, act.normed, act.ffn_act, rows);
            });
        } else {
            g.closure({Stage::ffn_gate_up, i}, [&] {
                product(layer.ffn_gate, act.normed, act.ffn_gate);
                product(layer.ffn_up, act.normed, act.ffn_up);
            });
            g.closure({Stage::silu, i}, [&] {
                each_row([&](uint32_t r) {
                    launch::silu_mul(g, act.ffn_gate.at(r), act.ffn_up.at(r), act.ffn_act.at(r));
                });
            });
        }
        g.closure({Stage::ffn_down, i},
                  [&] { product(layer.ffn_down, act.ffn_act, act.projected); });
    }

    // residual += post-norm of the FFN output; fused, with the norm of the next layer or the head.
    void ffn_boundary(int i, const LayerOnDevice& layer) const {
        if (!fused_boundaries()) {
            g.closure({Stage::post_ffn_norm, i}, [&] { post_norm(layer.post_ffw_norm); });
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
        each_row([&](uint32_t r) {
            launch::rms_norm_add_norm(g, schedule.boundary == Boundary::fused_4sg,
                                      act.projected.at(r), post, geometry().post_eps,
                                      act.residual.at(r), next, geometry().eps, out.at(r));
        });
    }

    void head() const {
        if (!fused_boundaries()) {
            g.closure({Stage::output_norm}, [&] { lone_norm(model.output_norm, act.hidden); });
        }
        Vector input = act.hidden.at(rows - head_rows);
        if (schedule.head_input == HeadInput::copied) {
            g.closure({Stage::copy_last_row},
                      [&] { launch::copy_row(g, act.hidden, act.head_input); });
            input = act.head_input;
        }
        g.closure({Stage::lm_head},
                  [&] { launch::mul_mv(g, model.output, input, act.logits, head_rows); });
        g.closure({Stage::softcap}, [&] {
            const uint64_t flag_bytes = launch::head_groups(act.logits.n) * uint64_t{4};
            for (uint32_t r = 0; r < head_rows; ++r) {
                launch::softcap(g, act.logits.at(r), act.flags, act.flags_offset + r * flag_bytes,
                                geometry().logit_scale, geometry().softcap);
            }
        });
        if (!phase.chooses) return;
        g.closure({Stage::argmax}, [&] {
            launch::argmax_groups(g, act.logits, act.best);
            g.order(kArgmaxPhases, {act.best});
            launch::argmax_final(g, act.logits, act.best, step_of(1));
        });
    }
};

}  // namespace

void encode_token(GraphEncoder& g, const ModelOnDevice& model, const Activations& act,
                  const Schedule& schedule, const Step& step, const Phase& phase) {
    TokenGraph{g, model, act, schedule, step, phase}.token();
}

void encode_chunk(GraphEncoder& g, const ModelOnDevice& model, const Activations& act,
                  const Schedule& schedule, const Step& step, const Phase& phase, uint32_t rows,
                  uint32_t head_rows) {
    TokenGraph{g, model, act, schedule, step, phase, rows, head_rows}.token();
}

Schedule chunk_schedule(Schedule schedule) {
    schedule.ring = WrappedRing::staged;
    schedule.publish = Publish::apart;
    schedule.qk = QkPath::apart;
    schedule.head_input = HeadInput::direct;
    return schedule;
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
            // Another name where the combine kernel has gated it already: another thing.
            if (schedule.gate == GatePath::in_combine) return {{"gated", act.attention}};
            return {{"", act.attention}};
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
            // Fused, the closure leaves ffn_act; a layer that could not be fused leaves it in silu.
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
            // As handed to the plane, before rounding to its type.
            return {{"k", act.k}, {"v", act.v}};
        case Stage::argmax:
        case Stage::count:
            break;
    }
    return {};
}

}  // namespace muser
