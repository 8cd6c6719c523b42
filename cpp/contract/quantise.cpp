#include "contract/quantise.h"

#include <bit>
#include <string>

#include "contract/f32.h"
#include "errors.h"

namespace muser::contract {
namespace {

// The exponent field of s for a block whose largest magnitude has the bits u (normal, finite): the
// smallest power of two with max / s rounding to at most 32639 = 127 * 256 + 127. The constant
// moves a maximum to the next binade exactly when it exceeds 32639.5 steps of the smaller one (a
// tie would round to the even 32640).
uint32_t scale_exponent(uint32_t u) {
    const int32_t e = static_cast<int32_t>((u + 0x10100u) >> 23) - 14;
    return static_cast<uint32_t>(e > 1 ? e : 1);
}

uint32_t largest_magnitude(const float* x) {
    uint32_t u = 0;
    for (size_t i = 0; i < kBlock; ++i) {
        const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
        if (magnitude > u) u = magnitude;
    }
    return u;
}

}  // namespace

float block_scale(uint32_t u) {
    if (u >= 0x7f800000u) return quiet_nan();
    if (u < 0x00800000u) return 0.0f;
    return std::bit_cast<float>(scale_exponent(u) << 23);
}

void quantise_block(const float x[kBlock], float* s, int16_t q[kBlock]) {
    const uint32_t u = largest_magnitude(x);
    *s = block_scale(u);
    if (u >= 0x7f800000u || u < 0x00800000u) {
        for (size_t i = 0; i < kBlock; ++i) q[i] = 0;
        return;
    }
    const float inverse = std::bit_cast<float>((254u - scale_exponent(u)) << 23);  // 1 / s, exact
    for (size_t i = 0; i < kBlock; ++i) q[i] = static_cast<int16_t>(rint(mul(x[i], inverse)));
}

void quantise(const float* x, size_t n, BlockForm* blocks) {
    if (n % kBlock != 0) {
        throw Error(
            "activations in block form come in multiples of 256, found " + std::to_string(n),
            {{"found", std::to_string(n)}, {"expected", "a multiple of 256"}});
    }
    for (size_t b = 0; b < n / kBlock; ++b) {
        BlockForm& block = blocks[b];
        int16_t q[kBlock];
        quantise_block(x + b * kBlock, &block.s, q);
        for (size_t i = 0; i < kBlock; ++i) {
            const int32_t low = static_cast<int8_t>(q[i] & 255);
            block.lo[i] = static_cast<int8_t>(low);
            block.hi[i] = static_cast<int8_t>((q[i] - low) / 256);
        }
        for (size_t group = 0; group < 16; ++group) {
            block.sums[group] = 0;
            for (size_t i = 0; i < 16; ++i) block.sums[group] += q[group * 16 + i];
        }
    }
}

}  // namespace muser::contract
