// Gate, SwiGLU, softcap, greedy choice (docs/numerics.md §6) and exp, tanh (§7).
#pragma once

#include <cstddef>
#include <cstdint>

namespace muser::contract {

// exp and tanh are metal/kernels/math.h under the flush rule.
float exp(float x);
float tanh(float x);
float sigmoid(float x);            // 1 / (1 + exp(-x))
float silu_mul(float g, float u);  // (g / (1 + exp(-g))) * u

// out[i] = attention[i] * sigmoid(gate[i]). out may be an input.
void sigmoid_gate(const float* attention, const float* gate, size_t n, float* out);

// out[i] = silu(gate[i]) * up[i]. out may be an input.
void silu_mul(const float* gate, const float* up, size_t n, float* out);

// cap * tanh((dot * logit_scale) / cap).
float softcap(float dot, float logit_scale, float cap);

// Caps n bare dots in place. True if any dot was NaN or infinite before the cap; the engine then
// reports the row as an error.
bool softcap(float* logits, size_t n, float logit_scale, float cap);

// Id of the largest logit, lowest id on a tie. A NaN never wins; 0 where nothing exceeds -inf.
uint32_t argmax(const float* logits, size_t n);

}  // namespace muser::contract
