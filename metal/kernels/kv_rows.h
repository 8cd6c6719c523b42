// Rows of KV planes: which view of the step slot a kernel looks through, and the ring's modulo.
#pragma once

#include "float_weights.h"

static inline constant KvView* kv_view(constant StepValues* step, uint view) {
    return view == MUSER_VIEW_RING    ? &step->ring
           : view == MUSER_VIEW_PLANE ? &step->plane
                                      : &step->shadow;
}

// Physical row of the `index`-th visible key, index < capacity.
static inline uint kv_row(uint first_row, uint index, uint capacity) {
    const uint row = first_row + index;
    return row >= capacity ? row - capacity : row;
}
