// RMS norms (docs/numerics.md §3). Each is one unit: the vector fits the first-level cache, the
// reduction is over all of it, and calling in other threads would cost more than the norm itself.
#include "device/cpu/kernel_groups.h"
#include "device/cpu/lanes_math.h"

namespace muser::device::cpu::MUSER_ISA {
namespace {

using Total = float (*)(const float*, size_t);

// About four passes over the vector at a few bytes a cycle.
MUSER_INLINE Work one_norm(uint64_t n) { return {1, 200 + n / 4}; }

template <class Args>
Work norm_work(const Call& call) {
    return one_norm(arguments<Args>(call).n);
}

// y = x * scale, or (x * scale) * w.
MUSER_INLINE void apply(const float* x, const float* weight, size_t n, float scale, float* y) {
    size_t i = 0;
    if (weight == nullptr) {
        MUSER_VECTORS(i, n) store(y + i, load(x + i) * splat(scale));
        for (; i < n; ++i) y[i] = x[i] * scale;
    } else {
        MUSER_VECTORS(i, n) store(y + i, (load(x + i) * splat(scale)) * load(weight + i));
        for (; i < n; ++i) y[i] = (x[i] * scale) * weight[i];
    }
}

// residual += (x * scale) * w.
MUSER_INLINE void apply_add(const float* x, const float* weight, size_t n, float scale,
                            float* residual) {
    size_t i = 0;
    MUSER_VECTORS(i, n) {
        store(residual + i, load(residual + i) + (load(x + i) * splat(scale)) * load(weight + i));
    }
    for (; i < n; ++i) residual[i] = residual[i] + (x[i] * scale) * weight[i];
}

MUSER_INLINE void quantise(const float* y, size_t n, uint32_t blocks, std::byte* form) {
    for (uint32_t b = 0; b < blocks; ++b) quantise_block(y + b * MUSER_BLOCK, n, b, form);
}

void rms_norm(const Call& call, uint64_t, uint64_t) {
    const NormArgs a = arguments<NormArgs>(call);
    const float* x = buffer<const float>(call, 1);
    apply(x, nullptr, a.n, rms_scale(sum_of_squares(x, a.n), a.n, a.eps), buffer<float>(call, 2));
}

template <Total total>
void rms_norm_mul(const Call& call, uint64_t, uint64_t) {
    const NormArgs a = arguments<NormArgs>(call);
    const float* x = buffer<const float>(call, 1);
    float* y = buffer<float>(call, 3);
    apply(x, buffer<const float>(call, 2), a.n, rms_scale(total(x, a.n), a.n, a.eps), y);
    quantise(y, a.n, a.blocks, buffer<std::byte>(call, 4));
}

void rms_norm_add(const Call& call, uint64_t, uint64_t) {
    const NormArgs a = arguments<NormArgs>(call);
    const float* x = buffer<const float>(call, 1);
    apply_add(x, buffer<const float>(call, 2), a.n, rms_scale(sum_of_squares(x, a.n), a.n, a.eps),
              buffer<float>(call, 3));
}

template <Total total>
void rms_norm_add_norm(const Call& call, uint64_t, uint64_t) {
    const DualNormArgs a = arguments<DualNormArgs>(call);
    const float* x = buffer<const float>(call, 1);
    float* residual = buffer<float>(call, 3);
    float* y = buffer<float>(call, 5);
    apply_add(x, buffer<const float>(call, 2), a.n, rms_scale(total(x, a.n), a.n, a.post_eps),
              residual);
    apply(residual, buffer<const float>(call, 4), a.n, rms_scale(total(residual, a.n), a.n, a.eps),
          y);
    quantise(y, a.n, a.blocks, buffer<std::byte>(call, 6));
}

float contract_total(const float* x, size_t n) { return sum_of_squares(x, n); }
float rejected_total(const float* x, size_t n) { return sum_of_squares_4sg(x, n); }

Work head_norm_work(const Call& call) {
    const HeadNormArgs a = arguments<HeadNormArgs>(call);
    return {a.heads, 10 + a.head_dim / 4};
}

void head_norm(const Call& call, uint64_t begin, uint64_t end) {
    const HeadNormArgs a = arguments<HeadNormArgs>(call);
    const float* weight = buffer<const float>(call, 1);
    for (uint64_t head = begin; head < end; ++head) {
        float* x = buffer<float>(call, 2) + head * a.head_dim;
        const float total = sum_of_squares(x, a.head_dim);
        apply(x, weight, a.head_dim, rms_scale(total, a.head_dim, a.eps), x);
    }
}

constexpr KernelImpl kTable[] = {
    {"rms_norm_f32", norm_work<NormArgs>, rms_norm},
    {"rms_norm_mul_b16", norm_work<NormArgs>, rms_norm_mul<contract_total>},
    {"rms_norm_mul_4sg_b16", norm_work<NormArgs>, rms_norm_mul<rejected_total>},
    {"rms_norm_add_f32", norm_work<NormArgs>, rms_norm_add},
    {"rms_norm_add_norm_b16", norm_work<DualNormArgs>, rms_norm_add_norm<contract_total>},
    {"rms_norm_add_norm_4sg_b16", norm_work<DualNormArgs>, rms_norm_add_norm<rejected_total>},
    {"head_norm_f32", head_norm_work, head_norm},
};

}  // namespace

KernelTable norm_kernels() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace muser::device::cpu::MUSER_ISA
