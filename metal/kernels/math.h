// exp and tanh of the contract (docs/numerics.md §7): normative for C++, MSL and CUDA.
//
// Only f32 *, +, /, fma, rint, bit casts; SIMD versions repeat these operations in this order. The
// few primitives come from the macros below: an includer may define any of them first; otherwise
// each language gets its default here. The includer's float mode applies (contract off, round to
// nearest, subnormals flushed); exp and tanh give the same bits with and without flushing for every
// input that is not subnormal.
//
// Include it as "metal/kernels/math.h" or from this folder by quotes; the folder must never be an
// include path, since this name would shadow the system's math.h.
#ifndef MUSER_KERNELS_MATH_H
#define MUSER_KERNELS_MATH_H

#if defined(__METAL_VERSION__)
#ifndef MUSER_FMA
#define MUSER_FMA(a, b, c) metal::fma(a, b, c)
#endif
#ifndef MUSER_RINT
#define MUSER_RINT(x) metal::rint(x)
#endif
#ifndef MUSER_SQRT
#define MUSER_SQRT(x) metal::precise::sqrt(x)
#endif
#ifndef MUSER_FLOAT_BITS
#define MUSER_FLOAT_BITS(x) as_type<unsigned int>(x)
#endif
#ifndef MUSER_BITS_FLOAT
#define MUSER_BITS_FLOAT(u) as_type<float>(u)
#endif
#ifndef MUSER_HALF_BITS_FLOAT
#define MUSER_HALF_BITS_FLOAT(u) static_cast<float>(as_type<half>(static_cast<ushort>(u)))
#endif
#ifndef MUSER_FLOAT_HALF_BITS
#define MUSER_FLOAT_HALF_BITS(x) static_cast<unsigned int>(as_type<ushort>(static_cast<half>(x)))
#endif

#elif defined(__CUDACC__)
#ifndef MUSER_FMA
#define MUSER_FMA(a, b, c) __fmaf_rn(a, b, c)
#endif
#ifndef MUSER_RINT
#define MUSER_RINT(x) rintf(x)
#endif
#ifndef MUSER_SQRT
#define MUSER_SQRT(x) __fsqrt_rn(x)
#endif
#ifndef MUSER_FLOAT_BITS
#define MUSER_FLOAT_BITS(x) __float_as_uint(x)
#endif
#ifndef MUSER_BITS_FLOAT
#define MUSER_BITS_FLOAT(u) __uint_as_float(u)
#endif
#if !defined(MUSER_HALF_BITS_FLOAT) || !defined(MUSER_FLOAT_HALF_BITS)
#ifndef MUSER_FN
#define MUSER_FN static __device__ inline
#endif
MUSER_FN float muser_cuda_half_to_float(unsigned int bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(bits)));
    return value;
}
MUSER_FN unsigned int muser_cuda_float_to_half(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif
#ifndef MUSER_HALF_BITS_FLOAT
#define MUSER_HALF_BITS_FLOAT(u) muser_cuda_half_to_float(u)
#endif
#ifndef MUSER_FLOAT_HALF_BITS
#define MUSER_FLOAT_HALF_BITS(x) muser_cuda_float_to_half(x)
#endif

#else  // C++
#include "../../cpp/contract/fma.h"
#include "../../cpp/contract/half.h"
#ifndef MUSER_FMA
#define MUSER_FMA(a, b, c) muser::contract::fma(a, b, c)
#endif
#ifndef MUSER_RINT
#define MUSER_RINT(x) muser::contract::rint(x)
#endif
#ifndef MUSER_SQRT
#define MUSER_SQRT(x) muser::contract::sqrt(x)
#endif
#ifndef MUSER_FLOAT_BITS
#define MUSER_FLOAT_BITS(x) std::bit_cast<uint32_t>(x)
#endif
#ifndef MUSER_BITS_FLOAT
#define MUSER_BITS_FLOAT(u) std::bit_cast<float>(static_cast<uint32_t>(u))
#endif
#ifndef MUSER_HALF_BITS_FLOAT
#define MUSER_HALF_BITS_FLOAT(u) muser::contract::f16_to_f32(static_cast<uint16_t>(u))
#endif
#ifndef MUSER_FLOAT_HALF_BITS
#define MUSER_FLOAT_HALF_BITS(x) static_cast<unsigned int>(muser::contract::f32_to_f16(x))
#endif
#endif

// Internal linkage: compiled per instruction set, and the linker must not mix the copies.
#ifndef MUSER_FN
#if defined(__METAL_VERSION__)
#define MUSER_FN inline
#elif defined(__CUDACC__)
#define MUSER_FN static __device__ inline
#else
#define MUSER_FN [[maybe_unused]] static inline
#endif
#endif

// exp(x). NaN gives NaN; above 0x1.62e42ep+6 +inf; below -0x1.5d589cp+6 +0; exp(+-0) = 1.
//
// x = n ln 2 + r, exp(x) = 2^n exp(r). ln 2 is split into its f32 and the f32 of what is left: n
// times the first is subtracted exactly (r keeps the last bit of x), so r is rounded once. The
// polynomial is 1 + r + r^2 (c2 + ... + c6 r^4): c2 ... c6 are the minimax fit (Remez) of exp(r) -
// 1 - r in relative error over |r| <= 1.0001 ln(2) / 2, each rounded to f32; the fit is good to
// 0.05 ulp, the rest is rounding. Measured over every f32 of the domain: 0.8943 ulp, at x =
// 0x1.4cec68p+2.
MUSER_FN float muser_exp(float x) {
    if (!(x <= 0x1.62e42ep+6f)) {
        return x != x ? x + x : MUSER_BITS_FLOAT(0x7f800000u);
    }
    if (x < -0x1.5d589cp+6f) return 0.0f;
    float n = MUSER_RINT(x * 0x1.715476p+0f);
    float r = MUSER_FMA(-n, 0x1.62e430p-1f, x);
    r = MUSER_FMA(-n, -0x1.05c610p-29f, r);
    float p = 0x1.6a2434p-10f;
    p = MUSER_FMA(p, r, 0x1.1239e2p-7f);
    p = MUSER_FMA(p, r, 0x1.5558f2p-5f);
    p = MUSER_FMA(p, r, 0x1.555492p-3f);
    p = MUSER_FMA(p, r, 0x1.fffffcp-2f);
    p = MUSER_FMA(p, r, 1.0f);
    p = MUSER_FMA(p, r, 1.0f);
    // n in [-126, 128] and the result is normal: adding n to the exponent field is exact.
    return MUSER_BITS_FLOAT(MUSER_FLOAT_BITS(p) +
                            (static_cast<unsigned int>(static_cast<int>(n)) << 23));
}

// tanh(x), odd: the sign is copied. +-1 at infinity, NaN gives NaN.
//
// Below 0.7 x + x^3 P(x^2), else 1 - 2 / (exp(2|x|) + 1). P starts from the minimax fit (Remez, of
// degree 4 in x^2, relative error of tanh); its f32 coefficients were then moved by a random search
// over their last bits for the smallest error in ulp. Measured over every f32: 0.831 ulp below the
// threshold, 1.061 ulp above it; a lower threshold makes the second figure worse (1.36 at 0.625).
MUSER_FN float muser_tanh(float x) {
    if (x != x) return x + x;
    unsigned int sign = MUSER_FLOAT_BITS(x) & 0x80000000u;
    float a = MUSER_BITS_FLOAT(MUSER_FLOAT_BITS(x) & 0x7fffffffu);
    float y;
    if (a < 0x1.666666p-1f) {
        float z = a * a;
        float p = -0x1.50bf2p-8f;
        p = MUSER_FMA(p, z, 0x1.493084p-6f);
        p = MUSER_FMA(p, z, -0x1.b6c11p-5f);
        p = MUSER_FMA(p, z, 0x1.10fae8p-3f);
        p = MUSER_FMA(p, z, -0x1.5554f6p-2f);
        y = MUSER_FMA(p * z, a, a);
    } else {
        y = 1.0f - 2.0f / (muser_exp(a + a) + 1.0f);
    }
    return MUSER_BITS_FLOAT(MUSER_FLOAT_BITS(y) | sign);
}

// 1 / (1 + exp(-x)) (docs/numerics.md §6).
MUSER_FN float muser_sigmoid(float x) { return 1.0f / (1.0f + muser_exp(-x)); }

// silu(g) * u = (g / (1 + exp(-g))) * u (docs/numerics.md §6).
MUSER_FN float muser_silu_mul(float g, float u) { return (g / (1.0f + muser_exp(-g))) * u; }

#endif  // MUSER_KERNELS_MATH_H
