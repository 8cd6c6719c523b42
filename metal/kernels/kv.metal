#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// Publishing this token's K and V, and staging a wrapped ring in position order (docs/numerics.md
// §9).
#include "kv_rows.h"

template <typename Plane>
static inline void kv_store(constant KvStoreArgs& args, constant StepValues* step,
                            device const float* k, device const float* v,
                            device typename Plane::Stored* plane_k,
                            device typename Plane::Stored* plane_v,
                            device typename Plane::Stored* journal_k,
                            device typename Plane::Stored* journal_v, uint3 group, uint tid) {
    const uint i = 256 * group.x + tid;
    if (i >= args.width) return;
    const size_t at = static_cast<size_t>(kv_view(step, args.view)->write_row) * args.width + i;
    if (args.journal != 0 && step->overwrite != 0) {
        const size_t kept = static_cast<size_t>(step->journal_row) * args.width + i;
        journal_k[kept] = plane_k[at];
        journal_v[kept] = plane_v[at];
    }
    plane_k[at] = Plane::store(k[i]);
    plane_v[at] = Plane::store(v[i]);
}

// One SIMD group per row of the shadow, in pieces of 16 bytes; a row is a multiple of 64.
template <typename Plane>
static inline void swa_stage(constant SwaStageArgs& args, constant StepValues* step,
                             device const float* k, device const float* v,
                             device const typename Plane::Stored* ring_k,
                             device const typename Plane::Stored* ring_v,
                             device typename Plane::Stored* shadow_k,
                             device typename Plane::Stored* shadow_v, uint3 group, uint lane,
                             uint simd) {
    const uint row = group.x * MUSER_SHAPE_STAGE_ROWS + simd;
    const uint older = step->ring.older;
    if (row > older) return;
    const size_t to = static_cast<size_t>(row) * args.width;
    if (row == older) {
        // This token's own row is not in the ring yet: rounded as kv_store will round it.
        for (uint i = lane; i < args.width; i += 32) {
            shadow_k[to + i] = Plane::store(k[i]);
            shadow_v[to + i] = Plane::store(v[i]);
        }
        return;
    }
    const size_t from =
        static_cast<size_t>(kv_row(step->ring.first_row, row, args.capacity)) * args.width;
    const uint pieces = args.width * static_cast<uint>(sizeof(typename Plane::Stored)) / 16;
    device const uint4* from_k = reinterpret_cast<device const uint4*>(ring_k + from);
    device const uint4* from_v = reinterpret_cast<device const uint4*>(ring_v + from);
    device uint4* to_k = reinterpret_cast<device uint4*>(shadow_k + to);
    device uint4* to_v = reinterpret_cast<device uint4*>(shadow_v + to);
    for (uint i = lane; i < pieces; i += 32) {
        to_k[i] = from_k[i];
        to_v[i] = from_v[i];
    }
}

#define MUSER_KV(P, Plane)                                                                         \
    kernel void kv_store_##P(                                                                      \
        constant KvStoreArgs& args [[buffer(0)]], constant StepValues* step [[buffer(1)]],         \
        device const float* k [[buffer(2)]], device const float* v [[buffer(3)]],                  \
        device Plane::Stored* plane_k [[buffer(4)]], device Plane::Stored* plane_v [[buffer(5)]],  \
        device Plane::Stored* journal_k [[buffer(6)]],                                             \
        device Plane::Stored* journal_v [[buffer(7)]], MUSER_THREAD) {                             \
        kv_store<Plane>(args, step, k, v, plane_k, plane_v, journal_k, journal_v, group, tid);     \
    }                                                                                              \
    MUSER_KERNEL(kv_store_##P, KvStoreArgs, 7)                                                     \
    kernel void swa_stage_##P(                                                                     \
        constant SwaStageArgs& args [[buffer(0)]], constant StepValues* step [[buffer(1)]],        \
        device const float* k [[buffer(2)]], device const float* v [[buffer(3)]],                  \
        device const Plane::Stored* ring_k [[buffer(4)]],                                          \
        device const Plane::Stored* ring_v [[buffer(5)]],                                          \
        device Plane::Stored* shadow_k [[buffer(6)]],                                              \
        device Plane::Stored* shadow_v [[buffer(7)]], MUSER_THREAD) {                              \
        swa_stage<Plane>(args, step, k, v, ring_k, ring_v, shadow_k, shadow_v, group, lane, simd); \
    }                                                                                              \
    MUSER_KERNEL(swa_stage_##P, SwaStageArgs, 7)

MUSER_KV(f16, PlaneF16)
MUSER_KV(f32, PlaneF32)
