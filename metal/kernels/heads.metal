#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// Per-head work on q and k: RMS norm over a head (docs/numerics.md §3) and RoPE (§5).
#include "head_norm.h"

kernel void head_norm_f32(constant HeadNormArgs& args [[buffer(0)]],
                          device const float* weight [[buffer(1)]], device float* x [[buffer(2)]],
                          MUSER_THREAD) {
    const uint head = 4 * group.x + simd;
    if (head >= args.heads) return;
    device float* row = x + static_cast<size_t>(head) * args.head_dim;
    const float scale = head_scale(row, args.head_dim, args.eps, lane);
    for (uint i = lane; i < args.head_dim; i += 32) row[i] = (row[i] * scale) * weight[i];
}
MUSER_KERNEL(head_norm_f32, HeadNormArgs, 2)

// One thread per interleaved pair; the table for this position is in the step slot.
kernel void rope_f32(constant RopeArgs& args [[buffer(0)]], constant StepValues* step [[buffer(1)]],
                     device float* x [[buffer(2)]], MUSER_THREAD) {
    const uint pairs = args.head_dim / 2;
    const uint pair = 256 * group.x + tid;
    if (pair >= args.heads * pairs) return;
    const uint i = pair % pairs;
    const float c = step->rope_cos[i];
    const float s = step->rope_sin[i];
    const float x0 = x[2 * pair];
    const float x1 = x[2 * pair + 1];
    x[2 * pair] = MUSER_FMA(x0, c, -(x1 * s));
    x[2 * pair + 1] = MUSER_FMA(x0, s, x1 * c);
}
MUSER_KERNEL(rope_f32, RopeArgs, 2)
