// After the head's product: softcap and greedy choice (docs/numerics.md §6); and the load-time
// probe of this instruction set's arithmetic (§0).
#include "device/cpu/kernel_groups.h"
#include "device/cpu/lanes_math.h"

// The probe exercises the operations that the kernels use, not the contract's guarded ones.
#define MUSER_FMA(a, b, c) ::muser::device::cpu::fma(a, b, c)
#define MUSER_RINT(x) ::muser::device::cpu::rint(::muser::device::cpu::splat(x))[0]
#define MUSER_SQRT(x) ::muser::device::cpu::square_root(x)
#define MUSER_HALF_BITS_FLOAT(u) ::muser::device::cpu::half_to_float(u)
#define MUSER_FLOAT_HALF_BITS(x) ::muser::device::cpu::float_to_half(x)

namespace muser::device::cpu {
namespace {

MUSER_INLINE float half_to_float(uint32_t half) {
    uint16_t lanes[kLanes] = {static_cast<uint16_t>(half)};
    return load_f16(lanes)[0];
}

MUSER_INLINE uint32_t float_to_half(float x) {
    uint16_t lanes[kLanes];
    store_f16(lanes, splat(x));
    return lanes[0];
}

}  // namespace
}  // namespace muser::device::cpu

#include "metal/kernels/probe_ops.h"

namespace muser::device::cpu::MUSER_ISA {
namespace {

MUSER_INLINE uint64_t group_count(uint64_t n) {
    return (n + MUSER_HEAD_GROUP - 1) / MUSER_HEAD_GROUP;
}

MUSER_INLINE uint64_t group_end(uint64_t group, uint64_t n) {
    return (group + 1) * MUSER_HEAD_GROUP < n ? (group + 1) * MUSER_HEAD_GROUP : n;
}

Work softcap_work(const Call& call) { return {group_count(arguments<SoftcapArgs>(call).n), 800}; }

void softcap(const Call& call, uint64_t begin, uint64_t end) {
    const SoftcapArgs a = arguments<SoftcapArgs>(call);
    float* x = buffer<float>(call, 1);
    for (uint64_t group = begin; group < end; ++group) {
        uint64_t i = group * MUSER_HEAD_GROUP;
        const uint64_t stop = group_end(group, a.n);
        Words largest = {};
        MUSER_VECTORS(i, stop) {
            const Floats dot = load(x + i);
            const Words u = bits(dot) & 0x7fffffffu;
            largest = u > largest ? u : largest;
            store(x + i, splat(a.cap) * tanh((dot * splat(a.logit_scale)) / splat(a.cap)));
        }
        bool bad = false;
        for (unsigned k = 0; k < kLanes; ++k) bad = bad || largest[k] >= 0x7f800000u;
        for (; i < stop; ++i) {
            bad = bad || non_finite(x[i]);
            x[i] = a.cap * tanh((x[i] * a.logit_scale) / a.cap);
        }
        buffer<uint32_t>(call, 2)[group] = bad ? 1 : 0;
    }
}

struct Best {
    float value;
    uint32_t id;
};

// Lowest id on a tie; a NaN never wins.
MUSER_INLINE void consider(Best& best, float value, uint32_t id) {
    if (value > best.value || (value == best.value && id < best.id)) best = {value, id};
}

Work argmax_groups_work(const Call& call) {
    return {group_count(arguments<VectorArgs>(call).n), 150};
}

void argmax_groups(const Call& call, uint64_t begin, uint64_t end) {
    const VectorArgs a = arguments<VectorArgs>(call);
    const float* x = buffer<const float>(call, 1);
    for (uint64_t group = begin; group < end; ++group) {
        uint64_t i = group * MUSER_HEAD_GROUP;
        const uint64_t stop = group_end(group, a.n);
        // Each lane keeps its first largest; a larger value elsewhere or a lower id then decides.
        Floats value = splat(-kInfinity);
        Words id = {};
        Words here;
        for (unsigned k = 0; k < kLanes; ++k) here[k] = static_cast<uint32_t>(i) + k;
        MUSER_VECTORS(i, stop) {
            const Floats v = load(x + i);
            const auto larger = v > value;
            value = larger ? v : value;
            id = larger ? here : id;
            here += kLanes;
        }
        Best best = {-kInfinity, 0};
        for (unsigned k = 0; k < kLanes; ++k) {
            if (value[k] > -kInfinity) consider(best, value[k], id[k]);
        }
        for (; i < stop; ++i) {
            if (x[i] > best.value) best = {x[i], static_cast<uint32_t>(i)};
        }
        buffer<Best>(call, 2)[group] = best;
    }
}

Work argmax_final_work(const Call& call) {
    return {1, 20 + uint64_t{arguments<VectorArgs>(call).n} * 2};
}

void argmax_final(const Call& call, uint64_t, uint64_t) {
    const VectorArgs a = arguments<VectorArgs>(call);
    const Best* groups = buffer<const Best>(call, 1);
    Best best = {-kInfinity, 0};
    for (uint32_t g = 0; g < a.n; ++g) {
        if (groups[g].value > best.value) best = groups[g];
    }
    *buffer<uint32_t>(call, 2) = best.id;
}

Work probe_work(const Call& call) { return {arguments<ProbeArgs>(call).count, 20}; }

void probe(const Call& call, uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
        const uint32_t* row = buffer<const uint32_t>(call, 1) + 4 * i;
        buffer<uint32_t>(call, 2)[i] = muser_probe_op(row[0], row[1], row[2], row[3]);
    }
}

constexpr KernelImpl kTable[] = {
    {"softcap_f32", softcap_work, softcap},
    {"argmax_groups_f32", argmax_groups_work, argmax_groups},
    {"argmax_final_f32", argmax_final_work, argmax_final},
    {"probe_u32", probe_work, probe},
};

}  // namespace

KernelTable head_kernels() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace muser::device::cpu::MUSER_ISA
