// Launchers of the matrix products and of the embedding lookup.
#pragma once

#include "metal/launch/vectors.h"

namespace muser::launch {

inline void embed(GraphEncoder& g, const Step& step, const DeviceWeight& table,
                  const Vector& hidden) {
    const uint64_t row_bytes = table.bytes / table.rows;
    // One row, named by the token id of the step values.
    const size_t id =
        step.chained ? offsetof(StepValues, device_token) : offsetof(StepValues, token);
    const Argument row{2,
                       &table.buffer,
                       table.offset,
                       Access::read,
                       table.bytes,
                       {true, 1, static_cast<uint32_t>(id / 4), RowRule::kConstant, 0, row_bytes}};
    g.dispatch("embed_" + table.type_name, EmbedArgs{hidden.n, table.rows, row_bytes}, 1, 1,
               {step.argument(), row, hidden.value(3, Access::write)});
}

// What a product reads of its activations. Q8_0 alone has neither minimum nor offset, and so no
// use for the sums.
inline Argument product_input(uint32_t index, const DeviceWeight& weight, const Vector& x,
                              uint32_t rows) {
    if (!weight.quantised) return x.value(index, Access::read, rows);
    Argument input = x.block(index, Access::read, rows);
    if (weight.type == model::TensorType::Q8_0) {
        input.forms_of = x.n;
        input.sums = false;
    }
    return input;
}

// y = weight * x, for `rows` vectors that follow each other.
inline void mul_mv(GraphEncoder& g, const DeviceWeight& own, const Vector& x, const Vector& y,
                   uint32_t rows = 1) {
    const DeviceWeight& weight = g.weight(own);
    const MatVecArgs args{weight.rows, weight.cols, rows, 0};
    const std::string kernel =
        "mul_mv_" + weight.type_name + (weight.quantised ? "_b16" : "_f32") + weight.layout;
    g.dispatch(kernel, args, weight.rows, rows,
               {weight_argument(1, weight), product_input(2, weight, x, rows),
                y.value(3, Access::write, rows)});
}

// Whether one kernel can make silu(gate * x) * (up * x): equal types and layouts, whole blocks.
inline bool can_fuse_silu(const DeviceWeight& gate, const DeviceWeight& up) {
    return gate.quantised && gate.type == up.type && gate.layout == up.layout &&
           gate.rows % MUSER_BLOCK == 0;
}

inline void mul_mv_silu(GraphEncoder& g, const DeviceWeight& gate, const DeviceWeight& up,
                        const Vector& x, const Vector& y, uint32_t rows = 1) {
    const MatVecArgs args{gate.rows, gate.cols, rows, y.blocks()};
    g.dispatch("mul_mv_silu_" + gate.type_name + "_b16" + gate.layout, args, gate.rows, rows,
               {weight_argument(1, gate), weight_argument(2, up), product_input(3, gate, x, rows),
                y.value(4, Access::write, rows), y.block(5, Access::write, rows)});
}

}  // namespace muser::launch
