#include "contract/pointwise.h"

#include <limits>

#include "contract/f32.h"
#include "metal/kernels/math.h"

namespace muser::contract {

// math.h computes in the caller's mode. For inputs that are not subnormal its results do not depend
// on that mode (tested over every f32), so flushing the input is all that the rule adds.
float exp(float x) { return muser_exp(flush(x)); }
float tanh(float x) { return muser_tanh(flush(x)); }

float sigmoid(float x) { return div(1.0f, add(1.0f, exp(-x))); }

float silu_mul(float g, float u) { return mul(div(g, add(1.0f, exp(-g))), u); }

void sigmoid_gate(const float* attention, const float* gate, size_t n, float* out) {
    for (size_t i = 0; i < n; ++i) out[i] = mul(attention[i], sigmoid(gate[i]));
}

void silu_mul(const float* gate, const float* up, size_t n, float* out) {
    for (size_t i = 0; i < n; ++i) out[i] = silu_mul(gate[i], up[i]);
}

float softcap(float dot, float logit_scale, float cap) {
    return mul(cap, tanh(div(mul(dot, logit_scale), cap)));
}

bool softcap(float* logits, size_t n, float logit_scale, float cap) {
    bool bad = false;
    for (size_t i = 0; i < n; ++i) {
        bad = bad || non_finite(logits[i]);
        logits[i] = softcap(logits[i], logit_scale, cap);
    }
    return bad;
}

uint32_t argmax(const float* logits, size_t n) {
    float best = -std::numeric_limits<float>::infinity();
    uint32_t id = 0;
    for (size_t i = 0; i < n; ++i) {
        const float logit = flush(logits[i]);
        if (logit > best) {
            best = logit;
            id = static_cast<uint32_t>(i);
        }
    }
    return id;
}

}  // namespace muser::contract
