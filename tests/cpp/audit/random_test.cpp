// Two opinions: the interval checker against the byte oracle, over random traces.
#include "audit/random_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "audit/checker.h"
#include "audit/mutate.h"
#include "audit/oracle.h"

namespace muser::audit {
namespace {

using Hazards = std::set<Oracle::Hazard>;

Oracle::Touch touch(const Analysis& found, uint32_t access) {
    const AccessRef& ref = found.accesses[access];
    const Node& node = found.nodes[ref.node];
    const bool host = node.dispatch == kNone;
    return {host, host ? node.host_event : node.dispatch, ref.use, ref.write};
}

// One entry per byte, as the oracle has them.
template <class Ranges>
Hazards bytes_of(const Trace& trace, const Analysis& found, const Ranges& ranges) {
    Hazards out;
    for (const auto& [from, to, begin, end] : ranges) {
        const uint64_t allocation = trace.objects[found.accesses[to].object].allocation;
        for (uint64_t b = begin; b < end; ++b) {
            out.insert({touch(found, from), touch(found, to), allocation, b});
        }
    }
    return out;
}

struct Counts {
    uint64_t graphs = 0, unsound = 0, hazards = 0, clean = 0;
};

void compare(uint64_t seed, Counts& counts) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Trace trace = random_trace(seed);
    ASSERT_NO_THROW(validate(trace));
    const Checker checker(trace);
    const Analysis& found = checker.analysis();
    const Oracle oracle(trace, true);

    std::vector<Pair> open;
    for (const Pair& pair : found.pairs) {
        if (!checker.cover(pair)) open.push_back(pair);
    }
    const auto as_set = [](const std::vector<Oracle::Hazard>& list) {
        return Hazards(list.begin(), list.end());
    };
    const Hazards hazards = as_set(oracle.hazards(trace));
    ASSERT_EQ(bytes_of(trace, found, open), hazards);

    std::vector<Pair> unwritten, wrong;
    for (const Unwritten& read : found.unwritten) {
        unwritten.push_back({read.access, read.access, read.begin, read.end});
    }
    for (const WrongProducer& read : found.wrong) {
        wrong.push_back({read.access, read.access, read.begin, read.end});
    }
    ASSERT_EQ(bytes_of(trace, found, unwritten), as_set(oracle.unwritten(trace)));
    ASSERT_EQ(bytes_of(trace, found, wrong), as_set(oracle.wrong_producers(trace)));
    ASSERT_EQ(checker.any(), oracle.unsound(trace));
    ASSERT_EQ(checker.any(), !checker.findings().empty());
    ASSERT_EQ(Oracle(trace).unsound(trace), oracle.unsound(trace));
    // Neighbours suffice: without an open pair all conflicts are ordered, also distant ones.
    if (open.empty()) {
        ASSERT_TRUE(oracle.all_ordered(trace));
    }

    // A barrier is redundant exactly when the oracle sees no difference without it.
    const std::vector<uint32_t> redundant = checker.redundant();
    Trace mutated = trace;
    for (const Mutant& mutant : mutants(trace)) {
        if (mutant.kind != MutantKind::delete_barrier) continue;
        const Mutated applied(mutated, mutant);
        const bool same = as_set(oracle.hazards(mutated)) == hazards;
        const bool listed =
            std::find(redundant.begin(), redundant.end(), mutant.barrier) != redundant.end();
        ASSERT_EQ(same, listed) << "barrier " << mutant.barrier;
    }
    ++counts.graphs;
    counts.unsound += checker.any();
    counts.hazards += hazards.size();
    counts.clean += open.empty() && !found.pairs.empty();
}

void sweep(uint64_t first, uint64_t count) {
    Counts counts;
    for (uint64_t seed = first; seed < first + count; ++seed) {
        compare(seed, counts);
        if (::testing::Test::HasFatalFailure()) return;
    }
    ::testing::Test::RecordProperty("graphs", static_cast<int>(counts.graphs));
    ::testing::Test::RecordProperty("unsound", static_cast<int>(counts.unsound));
    // Both kinds must be there in number, or nothing was compared.
    EXPECT_GT(counts.unsound, count / 10);
    EXPECT_GT(counts.clean, count / 100);
    EXPECT_GT(counts.hazards, count);
}

TEST(Random, CheckerEqualsOracle) { sweep(1, 2000); }
TEST(Random, SweepCheckerEqualsOracle) { sweep(1000000, 100000); }

// On random traces made sound, every mutant is judged alike by the pairs of the base, by a fresh
// check and by the oracle.
TEST(Random, MutantsOfSoundTraces) {
    uint64_t judged = 0;
    for (uint64_t seed = 1; seed <= 6000; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Trace trace = random_trace(seed);
        state_producers(trace);
        if (Checker(trace).any()) continue;
        const MutationReport report = run_mutants(trace);
        ASSERT_EQ(report.missed, 0u) << report.disagreements.front();
        ASSERT_EQ(report.extra, 0u) << report.disagreements.front();
        ASSERT_TRUE(report.silent_is_redundant);
        ASSERT_TRUE(report.together_sound);
        Trace work = trace;
        uint64_t reported = 0;
        for (const Mutant& mutant : mutants(trace)) {
            const Mutated applied(work, mutant);
            reported += Checker(work).any();
        }
        ASSERT_EQ(reported, report.reported);
        judged += report.total;
    }
    EXPECT_GT(judged, 500u);
}

}  // namespace
}  // namespace muser::audit
