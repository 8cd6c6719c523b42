// math.h over arrays, compiled with fused multiply-adds where the compiler knows how: what makes an
// exhaustive sweep of all f32 a matter of seconds.
#pragma once

#include <cstddef>

namespace muser::contract {

// Whether this machine can run the two below.
bool fast_math_runs_here();
void fast_exp(const float* x, float* y, size_t n);
void fast_tanh(const float* x, float* y, size_t n);

}  // namespace muser::contract
