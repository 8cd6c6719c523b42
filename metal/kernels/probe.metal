#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// The load-time arithmetic probe (docs/numerics.md §0): one row of the table per thread.
#include "portable.h"
#include "probe_ops.h"

kernel void probe_u32(constant ProbeArgs& args [[buffer(0)]], device const uint* rows [[buffer(1)]],
                      device uint* results [[buffer(2)]], MUSER_THREAD) {
    const uint row = 32 * group.x + tid;
    if (row >= args.count) return;
    results[row] =
        muser_probe_op(rows[4 * row], rows[4 * row + 1], rows[4 * row + 2], rows[4 * row + 3]);
}
MUSER_KERNEL(probe_u32, ProbeArgs, 2)
