// Launchers of gate, SwiGLU, head and argmax.
#pragma once

#include "metal/launch/vectors.h"

namespace muser::launch {

// attention *= sigmoid(gate), with its block form.
inline void gate(GraphEncoder& g, const Vector& gate, const Vector& attention) {
    g.dispatch("gate_b16", VectorArgs{attention.n, attention.blocks()}, attention.n, 1,
               {gate.value(1, Access::read), attention.value(2, Access::read_write),
                attention.block(3, Access::write)});
}

// y = silu(gate) * up, with its block form.
inline void silu_mul(GraphEncoder& g, const Vector& gate, const Vector& up, const Vector& y) {
    g.dispatch("silu_mul_b16", VectorArgs{y.n, y.blocks()}, y.n, 1,
               {gate.value(1, Access::read), up.value(2, Access::read), y.value(3, Access::write),
                y.block(4, Access::write)});
}

inline void copy_row(GraphEncoder& g, const Vector& from, const Vector& to) {
    g.dispatch("copy_row_b16", VectorArgs{from.n, from.blocks()}, from.n, 1,
               {from.value(1, Access::read), from.block(2, Access::read),
                to.value(3, Access::write), to.block(4, Access::write)});
}

constexpr uint32_t head_groups(uint32_t n) { return (n + MUSER_HEAD_GROUP - 1) / MUSER_HEAD_GROUP; }

// logits = cap * tanh(logits * scale / cap) in place; flags tell groups with a non-finite dot.
inline void softcap(GraphEncoder& g, const Vector& logits, const Buffer* flags, uint64_t offset,
                    float scale, float cap) {
    g.dispatch("softcap_f32", SoftcapArgs{logits.n, scale, cap}, logits.n, 1,
               {logits.value(1, Access::read_write),
                {2, flags, offset, Access::write, head_groups(logits.n) * uint64_t{4}, {}}});
}

// The greedy choice: each group's best {value, id}, then the best of them to the device_token of
// the slot that will feed it.
constexpr uint64_t kBestBytes = 8;

inline void argmax_groups(GraphEncoder& g, const Vector& logits, const Buffer* best) {
    g.dispatch("argmax_groups_f32", VectorArgs{logits.n, 0}, logits.n, 1,
               {logits.value(1, Access::read),
                {2, best, 0, Access::write, head_groups(logits.n) * kBestBytes, {}}});
}

inline void argmax_final(GraphEncoder& g, const Vector& logits, const Buffer* best,
                         const Step& next) {
    const uint32_t groups = head_groups(logits.n);
    g.dispatch("argmax_final_f32", VectorArgs{groups, 0}, 1, 1,
               {{1, best, 0, Access::read, groups * kBestBytes, {}},
                {2,
                 next.buffer,
                 next.offset + offsetof(StepValues, device_token),
                 Access::write,
                 sizeof(StepValues::device_token),
                 {}}});
}

}  // namespace muser::launch
