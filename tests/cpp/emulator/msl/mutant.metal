#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// A pointer to device memory passed as one to threadgroup memory: C++ without address spaces, and
// so the emulator and NVRTC, would take it.
#include "metal/kernels/norm.h"

kernel void mutant_address_space(constant NormArgs& args [[buffer(0)]],
                                 device float* x [[buffer(1)]], MUSER_THREAD) {
    x[tid] = norm_total(x[tid], args.n, x, lane, simd);
}
MUSER_KERNEL(mutant_address_space, NormArgs, 1)
