#include "contract/attention.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "contract/fma.h"
#include "contract/half.h"
#include "contract/pointwise.h"
#include "contract/tree.h"
#include "errors.h"

namespace muser::contract {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Correctly rounded f64 square root without libm.
double sqrt_f64(double x) {
#if defined(__SSE2__)
    return _mm_cvtsd_f64(_mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(x)));
#elif defined(__aarch64__)
    return vget_lane_f64(vsqrt_f64(vdup_n_f64(x)), 0);
#else
    return __builtin_sqrt(x);
#endif
}

float larger(float m, float s) { return s > m ? s : m; }

void require_keys(int64_t begin, int64_t end) {
    if (begin >= 0 && begin < end) return;
    throw Error("attention needs at least one visible key, found positions [" +
                    std::to_string(begin) + ", " + std::to_string(end) + ")",
                {{"begin", std::to_string(begin)}, {"end", std::to_string(end)}});
}

}  // namespace

int64_t KvRows::physical_row(int64_t position) const {
    const int64_t row = (origin_physical + position - origin_logical) % capacity;
    return row < 0 ? row + capacity : row;
}

float KvRows::at(int64_t position, size_t dim) const {
    const size_t index = static_cast<size_t>(physical_row(position)) * row_stride + dim;
    return type == KvType::F16 ? f16_to_f32(static_cast<const uint16_t*>(data)[index])
                               : static_cast<const float*>(data)[index];
}

float attention_scale(size_t head_dim) {
    return static_cast<float>(1.0 / sqrt_f64(static_cast<double>(head_dim)));
}

float attention_score(const float* q, const KvRows& keys, int64_t position, size_t head_dim,
                      float scale) {
    float partials[32];
    for (size_t t = 0; t < 32; ++t) {
        partials[t] = 0.0f;
        for (size_t d = t; d < head_dim; d += 32) {
            partials[t] = fma(q[d], keys.at(position, d), partials[t]);
        }
    }
    return mul(tree(partials, 32), scale);
}

ChunkState attention_chunk(const float* q, const KvRows& keys, const KvRows& values, int64_t chunk,
                           int64_t begin, int64_t end, size_t head_dim, float scale, float* o) {
    const int64_t first = std::max(begin, chunk * kChunk);
    const int64_t last = std::min(end, (chunk + 1) * kChunk);
    require_keys(first, last);

    float scores[kChunk];
    ChunkState state{kMinusInfinity, 0.0f};
    for (int64_t pos = first; pos < last; ++pos) {
        const float score = attention_score(q, keys, pos, head_dim, scale);
        scores[pos - chunk * kChunk] = score;
        state.m = larger(state.m, score);
    }

    float p[kChunk] = {};  // absent slots: +0
    for (int64_t pos = first; pos < last; ++pos) {
        const int64_t slot = pos - chunk * kChunk;
        p[slot] = exp(sub(scores[slot], state.m));
    }
    for (size_t d = 0; d < head_dim; ++d) {
        o[d] = 0.0f;
        for (int64_t pos = first; pos < last; ++pos) {
            o[d] = fma(p[pos - chunk * kChunk], values.at(pos, d), o[d]);
        }
    }
    state.l = tree(p, kChunk);  // last: it overwrites p
    return state;
}

void attention_combine(const ChunkState* states, const float* o, size_t count, size_t head_dim,
                       float* out) {
    float m = kMinusInfinity;
    for (size_t c = 0; c < count; ++c) m = larger(m, states[c].m);
    float l = 0.0f;
    for (size_t d = 0; d < head_dim; ++d) out[d] = 0.0f;
    for (size_t c = 0; c < count; ++c) {
        const float a = exp(sub(states[c].m, m));
        l = fma(a, states[c].l, l);
        for (size_t d = 0; d < head_dim; ++d) out[d] = fma(a, o[c * head_dim + d], out[d]);
    }
    for (size_t d = 0; d < head_dim; ++d) out[d] = div(out[d], l);
}

void attention(const float* q, const KvRows& keys, const KvRows& values, int64_t begin, int64_t end,
               size_t head_dim, float* out) {
    require_keys(begin, end);
    const float scale = attention_scale(head_dim);
    const int64_t first_chunk = begin / kChunk;
    const size_t count = static_cast<size_t>((end - 1) / kChunk - first_chunk + 1);
    std::vector<ChunkState> states(count);
    std::vector<float> o(count * head_dim);
    for (size_t c = 0; c < count; ++c) {
        states[c] = attention_chunk(q, keys, values, first_chunk + static_cast<int64_t>(c), begin,
                                    end, head_dim, scale, o.data() + c * head_dim);
    }
    attention_combine(states.data(), o.data(), count, head_dim, out);
}

}  // namespace muser::contract
