#include "contract/rope.h"

#include <string>

#include "contract/fma.h"
#include "errors.h"

namespace muser::contract {
namespace {

// pi/2 = kHalfPi1 + kHalfPi2 + kHalfPi3: the first two have 33 bits, so their products with an
// integer below 2^20 are exact; the third carries 53 more. The split is good to 2^-122.
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kHalfPi1 = 0x1.921fb544p+0;
constexpr double kHalfPi2 = 0x1.0b4611a6p-34;
constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;

// sin(r) = r + r^3 P(r^2) and cos(r) = 1 - r^2/2 + r^4 Q(r^2) for |r| <= pi/4: minimax fits
// (Remez), good to 0.03 and 0.0004 ulp of f64 before rounding.
constexpr double kSin[] = {-0x1.5555555555548p-3, 0x1.111111110f7dp-7,    -0x1.a01a019bfdee2p-13,
                           0x1.71de3567d2a74p-19, -0x1.ae5e5a91097bdp-26, 0x1.5d8fd1876a2c8p-33};
constexpr double kCos[] = {0x1.555555555554cp-5,   -0x1.6c16c16c15184p-10, 0x1.a01a019cb26e1p-16,
                           -0x1.27e4f80a75b5ep-22, 0x1.1ee9ec4744026p-29,  -0x1.8faecef5b0d1dp-37};

// Horner, in plain multiplications and additions.
double polynomial(const double (&c)[6], double z) {
    double p = c[5];
    for (int i = 4; i >= 0; --i) p = p * z + c[i];
    return p;
}

}  // namespace

// Two roundings of half an ulp each in r, one or two more in the polynomial: at most 2.5 ulp of f64
// measured where the result is above 2^-20. So the f32 results are the correctly rounded ones but
// for about one in 2^27.
SinCos sin_cos(double theta) {
    // Nearest integer, ties to even, without libm: |theta * 2/pi| is below 2^20.
    const double n = (theta * kTwoOverPi + 0x1.8p52) - 0x1.8p52;
    const double r = ((theta - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
    const double z = r * r;
    const double s = r + r * (z * polynomial(kSin, z));
    const double c = 1.0 - (0.5 * z - z * (z * polynomial(kCos, z)));
    switch (static_cast<int64_t>(n) & 3) {
        case 0:
            return {s, c};
        case 1:
            return {c, -s};
        case 2:
            return {-s, -c};
        default:
            return {-c, s};
    }
}

void rope_table(int64_t position, const double* inv, size_t pairs, float* cos, float* sin) {
    if (position < 0 || position >= (int64_t{1} << 20)) {
        throw Error("RoPE positions lie in [0, 2^20), found " + std::to_string(position),
                    {{"found", std::to_string(position)}, {"expected", "[0, 1048576)"}});
    }
    for (size_t i = 0; i < pairs; ++i) {
        if (!(inv[i] >= 0 && inv[i] <= 1)) {
            throw Error("inverse frequency " + std::to_string(i) + " lies outside [0, 1]",
                        {{"index", std::to_string(i)}, {"found", std::to_string(inv[i])}});
        }
        const SinCos value = sin_cos(static_cast<double>(position) * inv[i]);
        cos[i] = static_cast<float>(value.cos);
        sin[i] = static_cast<float>(value.sin);
    }
}

void rope(float* x, const float* cos, const float* sin, size_t pairs) {
    for (size_t i = 0; i < pairs; ++i) {
        const float x0 = x[2 * i];
        const float x1 = x[2 * i + 1];
        x[2 * i] = fma(x0, cos[i], -mul(x1, sin[i]));
        x[2 * i + 1] = fma(x0, sin[i], mul(x1, cos[i]));
    }
}

}  // namespace muser::contract
