// The one reduction order of the contract (docs/numerics.md §0).
#pragma once

#include <cstddef>

#include "contract/f32.h"

namespace muser::contract {

// tree(v) of a power-of-two list: halve repeatedly, v[i] += v[i + half]. Overwrites v.
static inline float tree(float* v, size_t n) {
    for (size_t half = n / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) v[i] = add(v[i], v[i + half]);
    }
    return v[0];
}

}  // namespace muser::contract
