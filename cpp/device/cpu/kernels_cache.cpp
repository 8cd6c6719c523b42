// RoPE and everything that writes the KV cache (docs/numerics.md §5, §9).
#include "device/cpu/kernel_groups.h"
#include "device/cpu/lanes_math.h"

namespace muser::device::cpu::MUSER_ISA {
namespace {

MUSER_INLINE const StepValues& step_of(const Call& call) {
    return *buffer<const StepValues>(call, 1);
}

// Interleaved pairs of one head, in place.
MUSER_INLINE void rotate(float* x, const StepValues& step, uint32_t head_dim) {
    for (uint32_t i = 0; i < head_dim / 2; ++i) {
        const float x0 = x[2 * i];
        const float x1 = x[2 * i + 1];
        const float c = step.rope_cos[i];
        const float s = step.rope_sin[i];
        x[2 * i] = fma(x0, c, -(x1 * s));
        x[2 * i + 1] = fma(x0, s, x1 * c);
    }
}

Work rope_work(const Call& call) {
    const RopeArgs a = arguments<RopeArgs>(call);
    return {a.heads, 4 + a.head_dim / 2};
}

void rope(const Call& call, uint64_t begin, uint64_t end) {
    const RopeArgs a = arguments<RopeArgs>(call);
    for (uint64_t head = begin; head < end; ++head) {
        rotate(buffer<float>(call, 2) + head * a.head_dim, step_of(call), a.head_dim);
    }
}

// This token's `n` elements at `offset` of a row, the row's old ones kept in the journal before.
template <class P>
MUSER_INLINE void store_part(typename P::Element* plane, typename P::Element* journal,
                             const StepValues& step, uint32_t write_row, size_t width,
                             size_t offset, const float* from, size_t n, bool keep) {
    typename P::Element* row = plane + write_row * width + offset;
    if (keep) {
        __builtin_memcpy(journal + step.journal_row * width + offset, row, n * sizeof *row);
    }
    put_row<P>(row, from, n);
}

Work kv_store_work(const Call& call) { return {1, 20 + arguments<KvStoreArgs>(call).width / 4}; }

template <class P>
void kv_store(const Call& call, uint64_t, uint64_t) {
    using Element = typename P::Element;
    const KvStoreArgs a = arguments<KvStoreArgs>(call);
    const StepValues& step = step_of(call);
    const uint32_t row = view(step, a.view).write_row;
    const bool keep = a.journal != 0 && step.overwrite != 0;
    store_part<P>(buffer<Element>(call, 4), buffer<Element>(call, 6), step, row, a.width, 0,
                  buffer<const float>(call, 2), a.width, keep);
    store_part<P>(buffer<Element>(call, 5), buffer<Element>(call, 7), step, row, a.width, 0,
                  buffer<const float>(call, 3), a.width, keep);
}

// A unit is one row of the shadow: the ring's older rows in position order, then this token's own.
Work swa_stage_work(const Call& call) {
    return {uint64_t{step_of(call).ring.older} + 1, 4 + arguments<SwaStageArgs>(call).width / 8};
}

template <class P>
void swa_stage(const Call& call, uint64_t begin, uint64_t end) {
    using Element = typename P::Element;
    const SwaStageArgs a = arguments<SwaStageArgs>(call);
    const StepValues& step = step_of(call);
    for (unsigned plane = 0; plane < 2; ++plane) {
        const Element* ring = buffer<const Element>(call, 4 + plane);
        Element* shadow = buffer<Element>(call, 6 + plane);
        for (uint64_t i = begin; i < end; ++i) {
            Element* to = shadow + i * a.width;
            if (i < step.ring.older) {
                const uint64_t row = (uint64_t{step.ring.first_row} + i) % a.capacity;
                __builtin_memcpy(to, ring + row * a.width, a.width * sizeof *to);
            } else {
                put_row<P>(to, buffer<const float>(call, 2 + plane), a.width);
            }
        }
    }
}

// A unit is a query head (norm, RoPE, in place) or, after those, a KV head (K: norm, RoPE, store;
// V: store).
Work qk_store_work(const Call& call) {
    const QkStoreArgs a = arguments<QkStoreArgs>(call);
    return {uint64_t{a.heads} + a.kv_heads, 20 + a.head_dim};
}

MUSER_INLINE void norm_rope(const float* x, const float* weight, const StepValues& step,
                            const QkStoreArgs& a, float* y) {
    const float scale = rms_scale(sum_of_squares(x, a.head_dim), a.head_dim, a.eps);
    for (uint32_t i = 0; i < a.head_dim; ++i) y[i] = (x[i] * scale) * weight[i];
    if (a.rope != 0) rotate(y, step, a.head_dim);
}

template <class P>
void qk_norm_rope_store(const Call& call, uint64_t begin, uint64_t end) {
    using Element = typename P::Element;
    const QkStoreArgs a = arguments<QkStoreArgs>(call);
    const StepValues& step = step_of(call);
    const uint32_t row = view(step, a.view).write_row;
    const bool keep = a.journal != 0 && step.overwrite != 0;
    const size_t width = size_t{a.kv_heads} * a.head_dim;
    for (uint64_t unit = begin; unit < end; ++unit) {
        if (unit < a.heads) {
            float* q = buffer<float>(call, 4) + unit * a.head_dim;
            norm_rope(q, buffer<const float>(call, 2), step, a, q);
            continue;
        }
        const size_t offset = (unit - a.heads) * a.head_dim;
        alignas(64) float k[MUSER_MAX_HEAD_DIM];
        norm_rope(buffer<const float>(call, 5) + offset, buffer<const float>(call, 3), step, a, k);
        store_part<P>(buffer<Element>(call, 7), buffer<Element>(call, 9), step, row, width, offset,
                      k, a.head_dim, keep);
        store_part<P>(buffer<Element>(call, 8), buffer<Element>(call, 10), step, row, width, offset,
                      buffer<const float>(call, 6) + offset, a.head_dim, keep);
    }
}

constexpr KernelImpl kTable[] = {
    {"rope_f32", rope_work, rope},
    {"kv_store_f16", kv_store_work, kv_store<PlaneF16>},
    {"kv_store_f32", kv_store_work, kv_store<PlaneF32>},
    {"swa_stage_f16", swa_stage_work, swa_stage<PlaneF16>},
    {"swa_stage_f32", swa_stage_work, swa_stage<PlaneF32>},
    {"qk_norm_rope_store_f16", qk_store_work, qk_norm_rope_store<PlaneF16>},
    {"qk_norm_rope_store_f32", qk_store_work, qk_norm_rope_store<PlaneF32>},
};

}  // namespace

KernelTable cache_kernels() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace muser::device::cpu::MUSER_ISA
