#include "metal/kernels/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "contract/f32.h"
#include "contract/ftz.h"
#include "contract/pointwise.h"
#include "math_fast.h"
#include "reference.h"

namespace muser::contract {
namespace {

using reference::bits;
using reference::from_bits;
using reference::kInfinity;
using reference::kNaN;

constexpr float kExpLargest = 0x1.62e42ep+6f;
constexpr float kExpSmallest = -0x1.5d589cp+6f;

TEST(Exp, Edges) {
    EXPECT_EQ(bits(muser_exp(0.0f)), bits(1.0f));
    EXPECT_EQ(bits(muser_exp(-0.0f)), bits(1.0f));
    EXPECT_EQ(muser_exp(kInfinity), kInfinity);
    EXPECT_EQ(bits(muser_exp(-kInfinity)), 0u);
    EXPECT_TRUE(std::isnan(muser_exp(kNaN)) && std::isnan(muser_exp(-kNaN)));
    EXPECT_LT(muser_exp(kExpLargest), kInfinity);
    EXPECT_GT(muser_exp(kExpLargest), 0x1.fffep127f);
    EXPECT_EQ(muser_exp(std::nextafter(kExpLargest, kInfinity)), kInfinity);
    EXPECT_GE(muser_exp(kExpSmallest), 0x1p-126f);
    EXPECT_LT(muser_exp(kExpSmallest), 0x1.001p-126f);
    EXPECT_EQ(bits(muser_exp(std::nextafter(kExpSmallest, -kInfinity))), 0u);
    EXPECT_EQ(bits(exp(from_bits(0x807fffffu))), bits(1.0f));
}

TEST(Tanh, Edges) {
    EXPECT_EQ(bits(muser_tanh(0.0f)), 0u);
    EXPECT_EQ(bits(muser_tanh(-0.0f)), 0x80000000u);
    EXPECT_EQ(muser_tanh(kInfinity), 1.0f);
    EXPECT_EQ(muser_tanh(-kInfinity), -1.0f);
    EXPECT_EQ(muser_tanh(50.0f), 1.0f);
    EXPECT_TRUE(std::isnan(muser_tanh(kNaN)) && std::isnan(muser_tanh(-kNaN)));
    EXPECT_EQ(bits(tanh(from_bits(0x807fffffu))), 0x80000000u);
    EXPECT_EQ(bits(tanh(from_bits(0x007fffffu))), 0u);
    EXPECT_EQ(tanh(0x1p-126f), 0x1p-126f);
}

// Error in ulp of a result that is normal, from the exponent field of the exact value.
double ulp(float found, double exact) {
    const uint64_t field = std::bit_cast<uint64_t>(exact) & 0x7ff0000000000000u;
    return std::fabs(found - exact) / std::bit_cast<double>(field - (uint64_t{23} << 52));
}

// Exact values in f64: the host's libm is good to about an ulp of f64, 2^-29 of ours, and the
// limits are far from what is measured, so nothing finer is needed.
double exact_exp(float x) { return std::exp(double{x}); }
double exact_exp_small(float x) { return 1.0 + double{x}; }  // |x| < 2^-26
double exact_tanh(float x) { return std::tanh(double{x}); }
double exact_tanh_small(float x) { return double{x} - double{x} * x * x / 3; }  // |x| < 2^-13

// A range of bit patterns, [first, last), multiples of kRun, on which one description holds.
struct Range {
    uint32_t first;
    uint32_t last;
    double (*exact)(float);  // finite and normal; nullptr: every result is `constant`
    float constant;
};

struct Worst {
    double error = 0;
    uint64_t wrong = 0;     // not the constant, or tanh not odd
    uint64_t mode = 0;      // results that depend on the flush mode
    uint64_t software = 0;  // results that differ between the fast and the baseline build

    void join(const Worst& other) {
        error = std::max(error, other.error);
        wrong += other.wrong;
        mode += other.mode;
        software += other.software;
    }
};

constexpr uint32_t kRun = 4096;
constexpr uint32_t kSign = 0x80000000u;

using Function = void (*)(const float*, float*, size_t);

void baseline_exp(const float* x, float* y, size_t n) {
    for (size_t i = 0; i < n; ++i) y[i] = muser_exp(x[i]);
}

void baseline_tanh(const float* x, float* y, size_t n) {
    for (size_t i = 0; i < n; ++i) y[i] = muser_tanh(x[i]);
}

uint64_t differences(const float* a, const float* b) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < kRun; ++i) count += bits(a[i]) != bits(b[i]);
    return count;
}

void check_run(uint32_t first, const Range& range, Function f, Function baseline, Worst* worst) {
    float x[kRun];
    float y[kRun];
    float other[kRun];
    for (uint32_t i = 0; i < kRun; ++i) x[i] = from_bits(first + i);
    f(x, y, kRun);
    if (range.exact != nullptr) {
        double error[kRun];
        for (uint32_t i = 0; i < kRun; ++i) error[i] = ulp(y[i], range.exact(x[i]));
        for (const double e : error) worst->error = e >= worst->error ? e : worst->error;
        for (const double e : error) worst->wrong += e != e;
        const FlushSubnormals mode;
        f(x, other, kRun);
    } else {
        std::fill(std::begin(other), std::end(other), range.constant);
        worst->wrong += differences(y, other);
        const FlushSubnormals mode;
        f(x, other, kRun);
    }
    worst->mode += differences(y, other);
    if (first / kRun % 64 != 0) return;
    baseline(x, other, kRun);
    worst->software += differences(y, other);
}

Worst sweep(const std::vector<Range>& ranges, Function fast, Function baseline) {
    const Function f = fast_math_runs_here() ? fast : baseline;
    const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
    std::vector<Worst> found(threads);
    std::vector<std::thread> pool;
    for (unsigned t = 0; t < threads; ++t) {
        pool.emplace_back([&, t] {
            Worst local;
            for (const Range& range : ranges) {
                const uint32_t runs = (range.last - range.first) / kRun;
                for (uint32_t r = t; r < runs; r += threads) {
                    check_run(range.first + r * kRun, range, f, baseline, &local);
                }
            }
            found[t] = local;
        });
    }
    for (std::thread& thread : pool) thread.join();
    Worst all;
    for (const Worst& one : found) all.join(one);
    return all;
}

// Both signs of everything below infinity; the runs that hold a bound of the domain are in
// EdgesElementByElement, NaN in Edges.
constexpr uint32_t kSmall = 0x32800000u;                                       // 2^-26
constexpr uint32_t kTop = std::bit_cast<uint32_t>(kExpLargest) & ~(kRun - 1);  // run of the bound
constexpr uint32_t kBottom = std::bit_cast<uint32_t>(-kExpSmallest) & ~(kRun - 1);
constexpr uint32_t kInfinityBits = 0x7f800000u;

TEST(Exp, SweepOfEveryFloat) {
    const Worst worst = sweep({{0, kSmall, exact_exp_small, 0},
                               {kSign, kSign + kSmall, exact_exp_small, 0},
                               {kSmall, kTop, exact_exp, 0},
                               {kSign + kSmall, kSign + kBottom, exact_exp, 0},
                               {kTop + kRun, kInfinityBits, nullptr, kInfinity},
                               {kSign + kBottom + kRun, kSign + kInfinityBits, nullptr, 0.0f}},
                              fast_exp, baseline_exp);
    EXPECT_LT(worst.error, 0.8943);  // the figure of math.h
    EXPECT_GT(worst.error, 0.8942);
    EXPECT_EQ(worst.wrong, 0u);
    EXPECT_EQ(worst.mode, 0u);
    EXPECT_EQ(worst.software, 0u);
}

TEST(Exp, EdgesElementByElement) {
    int cut_off = 0;
    for (uint32_t i = 0; i < kRun; ++i) {
        const float high = from_bits(kTop + i);
        if (high <= kExpLargest) {
            ASSERT_LT(ulp(muser_exp(high), exact_exp(high)), 0.9) << high;
        } else {
            ASSERT_EQ(muser_exp(high), kInfinity) << high;
        }
        const float low = from_bits(kSign + kBottom + i);
        if (low >= kExpSmallest) {
            ASSERT_GE(muser_exp(low), 0x1p-126f) << low;
            ASSERT_LT(ulp(muser_exp(low), exact_exp(low)), 0.9) << low;
        } else {
            ASSERT_EQ(bits(muser_exp(low)), 0u) << low;
            cut_off += exact_exp(low) >= 0x1p-126;
        }
    }
    // The pinned lower bound lies one f32 above the last whose exp is at least 2^-126.
    EXPECT_EQ(cut_off, 1);
}

constexpr uint32_t kTanhSmall = 0x39000000u;  // 2^-13
constexpr uint32_t kTanhOne = 0x41a00000u;    // 20

TEST(Tanh, SweepOfEveryFloat) {
    const Worst worst = sweep({{0x00800000u, kTanhSmall, exact_tanh_small, 0},
                               {kTanhSmall, kTanhOne, exact_tanh, 0},
                               {kTanhOne, kInfinityBits, nullptr, 1.0f}},
                              fast_tanh, baseline_tanh);
    EXPECT_LT(worst.error, 1.062);  // the figure of math.h
    EXPECT_GT(worst.error, 1.061);
    EXPECT_EQ(worst.wrong, 0u);
    EXPECT_EQ(worst.mode, 0u);
    EXPECT_EQ(worst.software, 0u);
}

// The sign is copied, so positive inputs stand for all: seen on every 1009th.
TEST(Tanh, IsOddAndMonotoneWithinAnUlp) {
    float last = 0;
    for (uint32_t u = 0x00800000u; u < kInfinityBits; u += 1009) {
        const float y = muser_tanh(from_bits(u));
        ASSERT_EQ(bits(muser_tanh(from_bits(u | kSign))), bits(y) | kSign);
        ASSERT_GE(y, last - 0x1p-23f);
        ASSERT_LE(y, 1.0f);
        last = y;
    }
}

}  // namespace
}  // namespace muser::contract
