// Activations: 16-bit block floating point (docs/numerics.md §1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/blocks.h"

namespace muser::contract {

// One block of 256 activations: x[i] is about s * q[i] with q[i] = 256 * hi[i] + lo[i],
// |q| <= 32639, hi in [-127, 127], lo in [-128, 127]. Only s and q are contract; the planes and the
// sums are storage that devices may lay out as they like.
struct BlockForm {
    float s;
    int8_t hi[kBlock];
    int8_t lo[kBlock];
    int32_t sums[16];  // of 16 consecutive q each
};

// q of element i (0 ... 255).
static inline int32_t block_q(const BlockForm& block, size_t i) {
    return 256 * block.hi[i] + block.lo[i];
}

// The scale of a block whose largest bits(x) & 0x7fffffff is u: NaN where a NaN or an infinity is
// present, +0 where nothing is normal, else the smallest power of two with |q| <= 32639.
float block_scale(uint32_t u);

// The contract itself: s and q of one block of 256.
void quantise_block(const float x[kBlock], float* s, int16_t q[kBlock]);

// n activations (a multiple of 256; throws muser::Error otherwise) into n / 256 blocks.
void quantise(const float* x, size_t n, BlockForm* blocks);

}  // namespace muser::contract
