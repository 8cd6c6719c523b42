#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// Elementwise kernels of the layer (docs/numerics.md §6), each writing the block form that the next
// product reads. One SIMD group per block of 256.
#include "block_form.h"

kernel void gate_b16(constant VectorArgs& args [[buffer(0)]],
                     device const float* gate [[buffer(1)]], device float* attention [[buffer(2)]],
                     device uchar* form [[buffer(3)]], MUSER_THREAD) {
    const uint block = group.x * (MUSER_SHAPE_POINTWISE_ELEMENTS / MUSER_BLOCK) + simd;
    if (args.blocks == 0) {
        for (uint i = MUSER_BLOCK * block + lane; i < min(args.n, MUSER_BLOCK * (block + 1));
             i += 32) {
            attention[i] = attention[i] * muser_sigmoid(gate[i]);
        }
        return;
    }
    if (block >= args.blocks) return;
    const uint first = MUSER_BLOCK * block + 8 * lane;
    const Eight g = load_eight(gate + first);
    Eight out = load_eight(attention + first);
    for (uint i = 0; i < 8; ++i) out.v[i] = out.v[i] * muser_sigmoid(g.v[i]);
    store_eight(attention + first, out);
    write_block(form, args.n, block, out, lane);
}
MUSER_KERNEL(gate_b16, VectorArgs, 3)

kernel void silu_mul_b16(constant VectorArgs& args [[buffer(0)]],
                         device const float* gate [[buffer(1)]],
                         device const float* up [[buffer(2)]], device float* y [[buffer(3)]],
                         device uchar* form [[buffer(4)]], MUSER_THREAD) {
    const uint block = group.x * (MUSER_SHAPE_POINTWISE_ELEMENTS / MUSER_BLOCK) + simd;
    if (args.blocks == 0) {
        for (uint i = MUSER_BLOCK * block + lane; i < min(args.n, MUSER_BLOCK * (block + 1));
             i += 32) {
            y[i] = muser_silu_mul(gate[i], up[i]);
        }
        return;
    }
    if (block >= args.blocks) return;
    const uint first = MUSER_BLOCK * block + 8 * lane;
    const Eight g = load_eight(gate + first);
    const Eight u = load_eight(up + first);
    Eight out;
    for (uint i = 0; i < 8; ++i) out.v[i] = muser_silu_mul(g.v[i], u.v[i]);
    store_eight(y + first, out);
    write_block(form, args.n, block, out, lane);
}
MUSER_KERNEL(silu_mul_b16, VectorArgs, 4)

// The head's input row and its block form, copied as `baseline` has it.
kernel void copy_row_b16(constant VectorArgs& args [[buffer(0)]],
                         device const float* x [[buffer(1)]],
                         device const uchar* form [[buffer(2)]], device float* y [[buffer(3)]],
                         device uchar* y_form [[buffer(4)]], MUSER_THREAD) {
    for (uint i = 1024 * group.x + tid; i < min(args.n, 1024 * (group.x + 1)); i += 256) {
        y[i] = x[i];
    }
    if (args.blocks == 0) return;
    // Bytes of the block form in words, a share per threadgroup.
    const uint words = (2 * args.n + args.n / 4 + args.n / 64) / 4;
    const uint share = (1024 * 2 + 1024 / 4 + 1024 / 64) / 4;
    device const uint* from = reinterpret_cast<device const uint*>(form);
    device uint* to = reinterpret_cast<device uint*>(y_form);
    for (uint i = share * group.x + tid; i < min(words, share * (group.x + 1)); i += 256) {
        to[i] = from[i];
    }
}
MUSER_KERNEL(copy_row_b16, VectorArgs, 4)
