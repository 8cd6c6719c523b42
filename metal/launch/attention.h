// Launchers of RoPE, the KV store, staging and attention.
#pragma once

#include <string>

#include "metal/launch/vectors.h"

namespace muser::launch {

// Sizes that every attention kernel needs.
struct Heads {
    uint32_t query, kv, dim;
    float scale;  // f32(1 / sqrt(dim))
};

inline void rope(GraphEncoder& g, const Step& step, const Vector& x, uint32_t head_dim) {
    g.dispatch("rope_f32", RopeArgs{x.n / head_dim, head_dim}, x.n / 2, 1,
               {step.argument({.head_dim = head_dim}), x.value(2, Access::read_write)});
}

inline void kv_store(GraphEncoder& g, const Step& step, const Vector& k, const Vector& v,
                     const Planes& to) {
    g.dispatch("kv_store_" + std::string(to.type()),
               KvStoreArgs{to.width, to.view.id, to.journal_k != nullptr}, to.width, 1,
               {step.argument({.view = to.view.id, .journal = to.journal_k != nullptr}),
                k.value(2, Access::read), v.value(3, Access::read), to.written(4, to.k),
                to.replaced(4, to.k), to.written(5, to.v), to.replaced(5, to.v),
                to.journaled(6, to.journal_k, to.k), to.journaled(7, to.journal_v, to.v)});
}

// The ring's older rows and this token's own, in position order.
inline void swa_stage(GraphEncoder& g, const Step& step, const Vector& k, const Vector& v,
                      const Planes& ring, const Planes& shadow) {
    const View view = ring.view;
    const auto older = [&](uint32_t index, const Buffer* plane) {
        return ring.rows(index, plane, Access::read, view.first_row(), view.older());
    };
    const auto staged = [&](uint32_t index, const Buffer* plane) {
        return shadow.rows(index, plane, Access::write, RowRule::kConstant, shadow.view.count());
    };
    g.dispatch("swa_stage_" + std::string(ring.type()), SwaStageArgs{ring.width, ring.capacity},
               shadow.capacity, 1,
               {step.argument(), k.value(2, Access::read), v.value(3, Access::read),
                older(4, ring.k), older(5, ring.v), staged(6, shadow.k), staged(7, shadow.v)});
}

// Partials of chunks that hold a visible key. Each row of a prompt chunk has its own.
struct Partials {
    const Buffer* buffer = nullptr;
    uint64_t row_bytes = 0;
    uint32_t row = 0;
    Partials at(uint32_t r) const { return {buffer, row_bytes, row + r}; }
};

inline uint64_t partials_bytes(const Heads& heads, uint64_t chunks) {
    return chunks * heads.query * (2 + heads.dim) * 4;
}

// `bucket` bounds the number of chunks; the step values tell it.
inline Argument partials_argument(uint32_t index, const Partials& partials, const Heads& heads,
                                  const Planes& from, uint32_t bucket, Access access) {
    const uint64_t stride = partials_bytes(heads, 1);
    return {index,  partials.buffer, partials.row * partials.row_bytes,
            access, stride * bucket, {true, 1, RowRule::kConstant, from.view.chunks(), 0, stride}};
}

inline AttendArgs attend_args(const Heads& heads, const Planes& from, uint32_t blocks) {
    return {heads.query, heads.kv, heads.dim, from.view.id, from.capacity, blocks, heads.scale};
}

inline void attend_chunks(GraphEncoder& g, bool gqa, const Step& step, const Heads& heads,
                          const Vector& q, const Planes& from, const Partials& partials,
                          uint32_t bucket) {
    const std::string kernel =
        (gqa ? "attend_chunks_gqa_" : "attend_chunks_") + std::string(from.type());
    g.dispatch(kernel, attend_args(heads, from, 0), bucket, gqa ? heads.kv : heads.query,
               {step.argument({.view = from.view.id}), q.value(2, Access::read),
                from.visible(3, from.k), from.visible(4, from.v),
                partials_argument(5, partials, heads, from, bucket, Access::write)});
}

inline void attend_combine(GraphEncoder& g, const Step& step, const Heads& heads,
                           const Planes& from, const Partials& partials, uint32_t bucket,
                           const Vector& out) {
    g.dispatch("attend_combine_f32", attend_args(heads, from, 0), out.n, 1,
               {step.argument({.view = from.view.id}),
                partials_argument(2, partials, heads, from, bucket, Access::read),
                out.value(3, Access::write)});
}

// The same, times sigmoid(gate), with the result's block form.
inline void attend_combine_gate(GraphEncoder& g, const Step& step, const Heads& heads,
                                const Planes& from, const Partials& partials, uint32_t bucket,
                                const Vector& gate, const Vector& out) {
    g.dispatch(
        "attend_combine_gate_b16", attend_args(heads, from, out.blocks()), out.n, 1,
        {step.argument({.view = from.view.id}),
         partials_argument(2, partials, heads, from, bucket, Access::read),
         gate.value(3, Access::read), out.value(4, Access::write), out.block(5, Access::write)});
}

// QK norm, RoPE (local layers) and the K, V store in one pass over the heads.
inline void qk_norm_rope_store(GraphEncoder& g, const Step& step, const Heads& heads,
                               const DeviceWeight& q_weight, const DeviceWeight& k_weight,
                               const Vector& q, const Vector& k, const Vector& v, float eps,
                               bool rope, const Planes& to) {
    const QkStoreArgs args{heads.query, heads.kv, heads.dim, to.view.id, to.journal_k != nullptr,
                           rope,        eps};
    g.dispatch(
        "qk_norm_rope_store_" + std::string(to.type()), args, heads.query + 2 * heads.kv, 1,
        {step.argument({.view = to.view.id,
                        .head_dim = heads.dim,
                        .journal = to.journal_k != nullptr,
                        .rope = rope}),
         weight_argument(2, q_weight), weight_argument(3, k_weight), q.value(4, Access::read_write),
         k.value(5, Access::read), v.value(6, Access::read), to.written(7, to.k),
         to.replaced(7, to.k), to.written(8, to.v), to.replaced(8, to.v),
         to.journaled(9, to.journal_k, to.k), to.journaled(10, to.journal_v, to.v)});
}

}  // namespace muser::launch
