#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// Head norms of q and k, RoPE, and the KV store in one kernel. One SIMD group per head: query heads
// first, then the KV heads' k, then their v. Bit for bit what head_norm, rope and kv_store do.
#include "head_norm.h"
#include "kv_rows.h"

// Element lane + 32 i of a head after its norm, and after RoPE where `rope` is set: the other half
// of an interleaved pair is in the neighbouring lane.
static inline float normed_element(float x, float scale, float weight, constant StepValues* step,
                                   uint rope, uint d, uint lane) {
    const float mine = (x * scale) * weight;
    const float other = simd_shuffle_xor(mine, static_cast<ushort>(1));
    if (rope == 0) return mine;
    const float c = step->rope_cos[d / 2];
    const float s = step->rope_sin[d / 2];
    return (lane & 1) == 0 ? MUSER_FMA(mine, c, -(other * s)) : MUSER_FMA(other, s, mine * c);
}

template <typename Plane>
static inline void store_element(device typename Plane::Stored* plane,
                                 device typename Plane::Stored* journal, size_t at, size_t kept,
                                 bool keep, float value) {
    if (keep) journal[kept] = plane[at];
    plane[at] = Plane::store(value);
}

template <typename Plane>
static inline void qk_norm_rope_store(constant QkStoreArgs& args, constant StepValues* step,
                                      device const float* q_weight, device const float* k_weight,
                                      device float* q, device const float* k, device const float* v,
                                      device typename Plane::Stored* plane_k,
                                      device typename Plane::Stored* plane_v,
                                      device typename Plane::Stored* journal_k,
                                      device typename Plane::Stored* journal_v, uint3 group,
                                      uint lane, uint simd) {
    const uint unit = 4 * group.x + simd;
    if (unit >= args.heads + 2 * args.kv_heads) return;
    if (unit < args.heads) {
        device float* row = q + static_cast<size_t>(unit) * args.head_dim;
        const float scale = head_scale(row, args.head_dim, args.eps, lane);
        for (uint d = lane; d < args.head_dim; d += 32) {
            row[d] = normed_element(row[d], scale, q_weight[d], step, args.rope, d, lane);
        }
        return;
    }

    const bool is_k = unit < args.heads + args.kv_heads;
    const uint kv_head = (unit - args.heads) % args.kv_heads;
    const size_t offset = static_cast<size_t>(kv_head) * args.head_dim;
    const size_t width = static_cast<size_t>(args.kv_heads) * args.head_dim;
    const size_t at = kv_view(step, args.view)->write_row * width + offset;
    const bool keep = args.journal != 0 && step->overwrite != 0;
    const size_t kept = keep ? step->journal_row * width + offset : 0;
    if (is_k) {
        device const float* row = k + offset;
        const float scale = head_scale(row, args.head_dim, args.eps, lane);
        for (uint d = lane; d < args.head_dim; d += 32) {
            const float value =
                normed_element(row[d], scale, k_weight[d], step, args.rope, d, lane);
            store_element<Plane>(plane_k, journal_k, at + d, kept + d, keep, value);
        }
    } else {
        for (uint d = lane; d < args.head_dim; d += 32) {
            store_element<Plane>(plane_v, journal_v, at + d, kept + d, keep, v[offset + d]);
        }
    }
}

#define MUSER_QK_STORE(P, Plane)                                                                \
    kernel void qk_norm_rope_store_##P(                                                         \
        constant QkStoreArgs& args [[buffer(0)]], constant StepValues* step [[buffer(1)]],      \
        device const float* q_weight [[buffer(2)]], device const float* k_weight [[buffer(3)]], \
        device float* q [[buffer(4)]], device const float* k [[buffer(5)]],                     \
        device const float* v [[buffer(6)]], device Plane::Stored* plane_k [[buffer(7)]],       \
        device Plane::Stored* plane_v [[buffer(8)]],                                            \
        device Plane::Stored* journal_k [[buffer(9)]],                                          \
        device Plane::Stored* journal_v [[buffer(10)]], MUSER_THREAD) {                         \
        qk_norm_rope_store<Plane>(args, step, q_weight, k_weight, q, k, v, plane_k, plane_v,    \
                                  journal_k, journal_v, group, lane, simd);                     \
    }                                                                                           \
    MUSER_KERNEL(qk_norm_rope_store_##P, QkStoreArgs, 10)

MUSER_QK_STORE(f16, PlaneF16)
MUSER_QK_STORE(f32, PlaneF32)
