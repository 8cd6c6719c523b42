// Random data, guarded buffers and one way to run a CPU kernel: its units split into random ranges,
// run in random order, with subnormals flushed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/kernel.h"
#include "metal/kernels/args.h"

namespace muser::cpu_test {

// The same numbers with every standard library (splitmix64).
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next();
    uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }
    uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    bool one_in(uint32_t n) { return below(n) == 0; }
    float uniform();  // [-1, 1)
    template <class T>
    T pick(std::initializer_list<T> values) {
        return values.begin()[below(static_cast<uint32_t>(values.size()))];
    }

  private:
    uint64_t state_;
};

// What a vector holds.
enum class Data {
    plain,    // about [-4, 4)
    wide,     // any exponent, zeros of both signs, subnormals
    damaged,  // wide with an infinity or NaN here and there
};
std::vector<float> floats(Random& random, size_t n, Data data);
std::vector<uint16_t> halves(Random& random, size_t n, Data data);

// Equal bits, or both NaN.
bool same(float a, float b);
// EXPECTs same() everywhere and says where not.
void expect_same(std::span<const float> found, std::span<const float> expected, const char* what);

// One dispatch of a kernel. Buffers are copies between guard words; run() checks the guards.
class Launch {
  public:
    template <class Args>
    Launch(const device::cpu::KernelImpl& kernel, const Args& args) : kernel_(kernel) {
        // An odd address: the recorded bytes of a dispatch may lie anywhere.
        args_.resize(sizeof args + 1);
        std::memcpy(args_.data() + 1, &args, sizeof args);
    }
    template <class T>
    Launch& with(unsigned index, const std::vector<T>& content) {
        return bytes(index, std::as_bytes(std::span<const T>(content)));
    }
    Launch& step(const StepValues& values) {
        return bytes(1, std::as_bytes(std::span<const StepValues>(&values, 1)));
    }
    void run(Random& random);
    template <class T>
    std::span<const T> result(unsigned index) const {
        const Buffer& buffer = buffers_.at(index);
        return {reinterpret_cast<const T*>(buffer.memory.get() + kGuard),
                buffer.length / sizeof(T)};
    }

  private:
    static constexpr size_t kGuard = 64;
    struct Free {
        void operator()(std::byte* p) const;
    };
    struct Buffer {
        std::unique_ptr<std::byte[], Free> memory;
        size_t length = 0;
    };
    Launch& bytes(unsigned index, std::span<const std::byte> content);

    const device::cpu::KernelImpl& kernel_;
    std::vector<std::byte> args_;
    std::map<unsigned, Buffer> buffers_;
};

// Expects the block form of `x` at argument `index`, as the contract quantises it.
void expect_block_form(const Launch& launch, unsigned index, std::span<const float> x);

// Room for the block form of n elements, filled with rubbish.
std::vector<std::byte> empty_form(size_t n);

// A check of one kernel against the contract, and the kernels it serves.
using Check = void (*)(const device::cpu::KernelImpl& kernel, Random& random, Data data);
using Checks = std::map<std::string, Check, std::less<>>;
void add_norm_checks(Checks& checks);
void add_attention_checks(Checks& checks);
void add_cache_checks(Checks& checks);
void add_head_checks(Checks& checks);

}  // namespace muser::cpu_test
