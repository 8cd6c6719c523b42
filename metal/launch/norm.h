// Launchers of the norms.
#pragma once

#include "metal/launch/vectors.h"

namespace muser::launch {

// y = rms_norm(x), no weight.
inline void rms_norm(GraphEncoder& g, const Vector& x, const Vector& y, float eps) {
    g.dispatch("rms_norm_f32", NormArgs{x.n, 0, eps}, 1, 1,
               {x.value(1, Access::read), y.value(2, Access::write)});
}

// y = rms_norm(x) * weight, with y's block form.
inline void rms_norm_mul(GraphEncoder& g, bool four_group, const Vector& x,
                         const DeviceWeight& weight, const Vector& y, float eps) {
    g.dispatch(four_group ? "rms_norm_mul_4sg_b16" : "rms_norm_mul_b16",
               NormArgs{x.n, y.blocks(), eps}, 1, 1,
               {x.value(1, Access::read), weight_argument(2, weight), y.value(3, Access::write),
                y.block(4, Access::write)});
}

// residual += rms_norm(x) * weight.
inline void rms_norm_add(GraphEncoder& g, const Vector& x, const DeviceWeight& weight,
                         const Vector& residual, float eps) {
    g.dispatch("rms_norm_add_f32", NormArgs{x.n, 0, eps}, 1, 1,
               {x.value(1, Access::read), weight_argument(2, weight),
                residual.value(3, Access::read_write)});
}

// residual += rms_norm(x) * post; y = rms_norm(residual) * next, with y's block form.
inline void rms_norm_add_norm(GraphEncoder& g, bool four_group, const Vector& x,
                              const DeviceWeight& post, float post_eps, const Vector& residual,
                              const DeviceWeight& next, float eps, const Vector& y) {
    g.dispatch(
        four_group ? "rms_norm_add_norm_4sg_b16" : "rms_norm_add_norm_b16",
        DualNormArgs{x.n, y.blocks(), post_eps, eps}, 1, 1,
        {x.value(1, Access::read), weight_argument(2, post), residual.value(3, Access::read_write),
         weight_argument(4, next), y.value(5, Access::write), y.block(6, Access::write)});
}

// Each head of x normalised in place.
inline void head_norm(GraphEncoder& g, const DeviceWeight& weight, const Vector& x,
                      uint32_t head_dim, float eps) {
    const uint32_t heads = x.n / head_dim;
    g.dispatch("head_norm_f32", HeadNormArgs{heads, head_dim, eps}, heads, 1,
               {weight_argument(1, weight), x.value(2, Access::read_write)});
}

}  // namespace muser::launch
