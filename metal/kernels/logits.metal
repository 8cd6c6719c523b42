#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// The head's last steps (docs/numerics.md §6): softcap with its non-finite flag, and the greedy
// choice.
#include "reduce.h"

kernel void softcap_f32(constant SoftcapArgs& args [[buffer(0)]],
                        device float* logits [[buffer(1)]], device uint* flags [[buffer(2)]],
                        MUSER_THREAD) {
    MUSER_THREADGROUP(uint, found, 8);
    uint bad = 0;
    const uint end = min(args.n, MUSER_HEAD_GROUP * (group.x + 1));
    for (uint i = MUSER_HEAD_GROUP * group.x + tid; i < end; i += 256) {
        const float dot = logits[i];
        // Seen before the cap, which would turn an infinity into a plausible logit.
        if (is_non_finite(dot)) bad = 1;
        logits[i] = args.cap * muser_tanh((dot * args.logit_scale) / args.cap);
    }
    bad = simd_max(bad);
    if (lane == 0) found[simd] = bad;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid == 0) {
        for (uint i = 1; i < 8; ++i) bad |= found[i];
        flags[group.x] = bad;
    }
}
MUSER_KERNEL(softcap_f32, SoftcapArgs, 2)

struct Best {
    float value;
    uint id;
};

// The larger value, on a tie the lower id; a NaN loses against everything.
static inline Best better(Best a, Best b) {
    const bool second = b.value > a.value || (b.value == a.value && b.id < a.id);
    return second ? b : a;
}
static inline Best nothing_yet() {
    Best out;
    out.value = MUSER_BITS_FLOAT(0xff800000u);
    out.id = 0;
    return out;
}

// The best of a threadgroup of 256, in thread 0.
static inline Best best_of_group(Best mine, threadgroup float* values, threadgroup uint* ids,
                                 uint tid, uint lane, uint simd) {
    for (ushort mask = 16; mask > 0; mask >>= 1) {
        Best other;
        other.value = simd_shuffle_xor(mine.value, mask);
        other.id = simd_shuffle_xor(mine.id, mask);
        mine = better(mine, other);
    }
    if (lane == 0) {
        values[simd] = mine.value;
        ids[simd] = mine.id;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid == 0) {
        for (uint i = 1; i < 8; ++i) {
            Best other;
            other.value = values[i];
            other.id = ids[i];
            mine = better(mine, other);
        }
    }
    return mine;
}

kernel void argmax_groups_f32(constant VectorArgs& args [[buffer(0)]],
                              device const float* logits [[buffer(1)]],
                              device Best* best [[buffer(2)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, values, 8);
    MUSER_THREADGROUP(uint, ids, 8);
    Best mine = nothing_yet();
    const uint end = min(args.n, MUSER_HEAD_GROUP * (group.x + 1));
    for (uint i = MUSER_HEAD_GROUP * group.x + tid; i < end; i += 256) {
        if (logits[i] > mine.value) {
            mine.value = logits[i];
            mine.id = i;
        }
    }
    mine = best_of_group(mine, values, ids, tid, lane, simd);
    if (tid == 0) {
        best[group.x].value = mine.value;
        best[group.x].id = mine.id;
    }
}
MUSER_KERNEL(argmax_groups_f32, VectorArgs, 2)

kernel void argmax_final_f32(constant VectorArgs& args [[buffer(0)]],
                             device const Best* best [[buffer(1)]],
                             device uint* token [[buffer(2)]], MUSER_THREAD) {
    MUSER_THREADGROUP(float, values, 8);
    MUSER_THREADGROUP(uint, ids, 8);
    Best mine = nothing_yet();
    for (uint i = tid; i < args.n; i += 256) {
        Best other;
        other.value = best[i].value;
        other.id = best[i].id;
        mine = better(mine, other);
    }
    mine = best_of_group(mine, values, ids, tid, lane, simd);
    if (tid == 0) token[0] = mine.id;
}
MUSER_KERNEL(argmax_final_f32, VectorArgs, 2)
