// Thousands of damaged headers: each is loaded or refused with GGUFError, and no field of the
// file, however large its claim, buys memory. This binary counts every operator new.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <new>
#include <set>
#include <string>

#include "expect_refusal.h"
#include "gguf_builder.h"
#include "mutate.h"

namespace {

// Plain numbers under one flag: the tests load on one thread.
struct Allocations {
    std::atomic<bool> counting{false};
    size_t largest = 0;
    size_t total = 0;  // of all ever made, freed or not
};
Allocations allocations;

void* counted(size_t size) {
    if (allocations.counting.load(std::memory_order_relaxed)) {
        allocations.largest = std::max(allocations.largest, size);
        allocations.total += size;
    }
    void* p = std::malloc(size);
    if (p == nullptr) throw std::bad_alloc();
    return p;
}

}  // namespace

void* operator new(size_t size) { return counted(size); }
void* operator new[](size_t size) { return counted(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace muser::test {
namespace {

// An error's own text may be longer than a file of a few bytes.
constexpr size_t smallest_limit = 4096;
constexpr size_t total_slack = size_t{64} << 20;

struct Tally {
    uint64_t accepted = 0;
    uint64_t refused = 0;
    std::set<std::string> reasons;
};

void load(model::Bytes file, Tally& tally) {
    allocations.largest = 0;
    allocations.total = 0;
    std::string message;
    allocations.counting = true;
    const bool accepted = load_and_walk(file, &message);
    allocations.counting = false;
    ASSERT_LE(allocations.largest, std::max(file.size(), smallest_limit)) << message;
    ASSERT_LE(allocations.total, 4 * file.size() + total_slack) << message;
    ++(accepted ? tally.accepted : tally.refused);
    if (!accepted) tally.reasons.insert(reason(message));
}

Tally mutate(const GgufBuilder& builder, uint64_t count, uint64_t seed) {
    Tally tally;
    HeaderMutator mutator(builder.build(), builder.header().size(), seed);
    for (uint64_t i = 0; i < count && !testing::Test::HasFatalFailure(); ++i) {
        SCOPED_TRACE("mutation " + std::to_string(i) + ", seed " + std::to_string(seed));
        load(mutator.next(), tally);
    }
    return tally;
}

TEST(Mutation, TheCounterCounts) {
    Tally tally;
    const Buffer file = tiny_model().build();
    load(view(file), tally);
    EXPECT_EQ(tally.accepted, 1U);
    EXPECT_GT(allocations.total, 1000U);
    EXPECT_GE(allocations.total, allocations.largest);
    allocations.counting = true;
    allocations.largest = 0;
    const Buffer big(1 << 20);
    allocations.counting = false;
    EXPECT_GE(allocations.largest, big.size());
}

TEST(Mutation, DamagedHeaders) {
    const Tally f32 = mutate(tiny_model(), 1000, 1);
    const Tally mixed = mutate(tiny_mixed_model(), 1000, 2);
    for (const Tally& tally : {f32, mixed}) {
        EXPECT_EQ(tally.accepted + tally.refused, 1000U);
        // Most damage must be seen; some falls on text that changes nothing.
        EXPECT_GT(tally.refused, 500U);
        EXPECT_GT(tally.accepted, 10U);
        EXPECT_GT(tally.reasons.size(), 12U);
    }
}

TEST(Mutation, DamagedHeadersSweep) {
    const Tally f32 = mutate(tiny_model(), 50000, 3);
    const Tally mixed = mutate(tiny_mixed_model(), 50000, 4);
    EXPECT_EQ(f32.accepted + f32.refused + mixed.accepted + mixed.refused, 100000U);
    for (const Tally& tally : {f32, mixed}) EXPECT_GT(tally.reasons.size(), 20U);
}

// Files that claim the most for their size: all keys, all tensors, as small as they can be.
TEST(Mutation, ManySmallEntries) {
    Tally tally;
    GgufBuilder keys;
    for (int i = 0; i < 40000; ++i) {
        keys.append(std::to_string(i), Encoder().u32(u8_id).u8(1));
    }
    const Buffer many_keys = keys.build();
    load(view(many_keys), tally);
    GgufBuilder tensors;
    for (int i = 0; i < 40000; ++i) {
        tensors.tensors.push_back({.name = std::to_string(i), .dims = {1}, .offset = 0});
    }
    const Buffer many_tensors = tensors.build();
    load(view(many_tensors), tally);
    // As many layers as may be claimed, with none of their tensors.
    GgufBuilder layers = tiny_model({.layers = 1024});
    layers.tensors.resize(1);
    const Buffer many_layers = layers.build();
    load(view(many_layers), tally);
    EXPECT_EQ(tally.refused, 3U);
}

}  // namespace
}  // namespace muser::test
