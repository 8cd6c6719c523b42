// Independent arithmetic for the contract's tests: f32 operations by integers alone, a seeded
// generator, and error in ulp against f64.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace muser::reference {

__extension__ typedef unsigned __int128 Wide;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

inline uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
inline float from_bits(uint32_t u) { return std::bit_cast<float>(u); }

// A sign and mantissa * 2^exponent; subnormals are zeros.
struct Parts {
    bool negative;
    uint32_t mantissa;
    int exponent;
};

inline Parts parts(float x) {
    const uint32_t u = bits(x);
    const int field = static_cast<int>((u >> 23) & 255);
    if (field == 0) return {u >> 31 != 0, 0, 0};
    return {u >> 31 != 0, (u & 0x7fffff) | 0x800000, field - 150};
}

inline int bit_length(Wide v) {
    int n = 0;
    while (v != 0) {
        v >>= 1;
        ++n;
    }
    return n;
}

// mantissa * 2^exponent, plus a positive part below one unit if `sticky`, to f32: nearest even with
// an unbounded exponent, then infinity above and zero below the normal range.
inline float round(bool negative, Wide mantissa, int exponent, bool sticky) {
    const uint32_t sign = negative ? 0x80000000u : 0;
    if (mantissa == 0) return from_bits(sign);
    const int drop = bit_length(mantissa) - 24;
    if (drop > 0) {
        const Wide unit = Wide{1} << drop;
        const Wide rest = mantissa & (unit - 1);
        mantissa >>= drop;
        const Wide half = unit / 2;
        if (rest > half || (rest == half && (sticky || (mantissa & 1) != 0))) ++mantissa;
    } else {
        mantissa <<= -drop;
    }
    exponent += drop;
    if (mantissa == Wide{1} << 24) {
        mantissa >>= 1;
        ++exponent;
    }
    if (exponent + 23 > 127) return from_bits(sign | 0x7f800000u);
    if (exponent + 23 < -126) return from_bits(sign);
    return from_bits(sign | static_cast<uint32_t>(exponent + 150) << 23 |
                     (static_cast<uint32_t>(mantissa) & 0x7fffff));
}

// Finite inputs only, all of the following.
inline float fma(float a, float b, float c) {
    const Parts x = parts(a);
    const Parts y = parts(b);
    const Parts z = parts(c);
    const bool product_negative = x.negative != y.negative;
    Wide p = Wide{x.mantissa} * y.mantissa;
    Wide q = z.mantissa;
    if (p == 0 && q == 0) return from_bits(product_negative && z.negative ? 0x80000000u : 0);
    if (p == 0) return c;
    int exponent = x.exponent + y.exponent;
    if (q == 0) return round(product_negative, p, exponent, false);
    bool sticky = false;
    const int gap = z.exponent - exponent;  // addend above product
    if (gap > 102) {
        q <<= 54;
        p = 0;
        exponent = z.exponent - 54;
        sticky = true;
    } else if (gap >= 0) {
        q <<= gap;
    } else if (gap >= -70) {
        p <<= -gap;
        exponent = z.exponent;
    } else {
        p <<= 40;
        q = 0;
        exponent -= 40;
        sticky = true;
    }
    if (product_negative == z.negative) return round(z.negative, p + q, exponent, sticky);
    if (p == q) return 0.0f;
    const bool negative = p > q ? product_negative : z.negative;
    const Wide difference = p > q ? p - q : q - p;
    // What was dropped counts against the rest: one unit less, and a part above it.
    return round(negative, difference - (sticky ? 1 : 0), exponent, sticky);
}

inline float add(float a, float b) { return fma(a, 1.0f, b); }

inline float mul(float a, float b) {
    const Parts x = parts(a);
    const Parts y = parts(b);
    return round(x.negative != y.negative, Wide{x.mantissa} * y.mantissa, x.exponent + y.exponent,
                 false);
}

// b not zero.
inline float div(float a, float b) {
    const Parts x = parts(a);
    const Parts y = parts(b);
    const Wide numerator = Wide{x.mantissa} << 64;
    return round(x.negative != y.negative, numerator / y.mantissa, x.exponent - y.exponent - 64,
                 numerator % y.mantissa != 0);
}

// a not negative.
inline float sqrt(float a) {
    const Parts x = parts(a);
    const int odd = x.exponent & 1;
    const Wide square = Wide{x.mantissa} << (60 + odd);
    Wide root = 0;
    for (int bit = 46; bit >= 0; --bit) {
        const Wide trial = root | Wide{1} << bit;
        if (trial * trial <= square) root = trial;
    }
    return round(false, root, (x.exponent - 60 - odd) / 2, root * root != square);
}

// tree as a recursion over the halves' element-wise sums.
inline float tree(const std::vector<float>& v) {
    if (v.size() == 1) return v[0];
    std::vector<float> sums;
    for (size_t i = 0; i < v.size() / 2; ++i) sums.push_back(add(v[i], v[i + v.size() / 2]));
    return tree(sums);
}

// SplitMix64.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    uint32_t word() { return static_cast<uint32_t>(next() >> 32); }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(uint64_t{word()} * n >> 32); }
    // Any finite normal f32 whose exponent field lies in [low, high].
    float with_exponent(uint32_t low, uint32_t high) {
        const uint32_t field = low + below(high - low + 1);
        return from_bits((word() & 0x807fffffu) | field << 23);
    }
    // In (-1, 1), a multiple of 2^-23.
    float symmetric() {
        return static_cast<float>(static_cast<int32_t>(below(1u << 24)) - (1 << 23)) * 0x1p-23f;
    }
    // Roughly normal, standard deviation 1.
    float gaussian() {
        float sum = 0;
        for (int i = 0; i < 12; ++i) sum += symmetric();
        return sum * 0.5f;
    }

  private:
    uint64_t state_;
};

// |found - exact| in units of the last place of f32 at `exact` (its normal range).
inline double ulp_error(float found, double exact) {
    return std::fabs(found - exact) / std::ldexp(1.0, std::ilogb(exact) - 23);
}

}  // namespace muser::reference
