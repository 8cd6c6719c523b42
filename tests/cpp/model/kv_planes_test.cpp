// KV bookkeeping against an unbounded cache: the same operations on rows that carry their owner's
// mark, in arrays laid out as the engine lays them out.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "errors.h"
#include "model/kv_planes.h"
#include "mutate.h"

namespace muser::test {
namespace {

using model::Geometry;
using model::KvAppend;
using model::KvMove;
using model::KvPlane;
using model::KvPlanes;
using model::KvType;
using model::KvView;

constexpr uint64_t never = ~uint64_t{0};

struct State {
    uint64_t length, origin_logical, origin_physical, journal;
    bool operator==(const State&) const = default;
};
State state(const KvPlane& p) {
    return {p.length(), p.origin_logical(), p.origin_physical(), p.journal_length()};
}

// Does what the engine does with rows. A row is one number, unique per write.
class Rows {
  public:
    Rows(uint64_t capacity, uint64_t window, uint32_t rollback_max)
        : plane(capacity, window, rollback_max),
          ring_(capacity, never),
          journal_(rollback_max, never) {}

    void append() {
        const KvAppend a = plane.append();
        EXPECT_EQ(a.position, truth_.size());
        if (a.overwrites) {
            EXPECT_EQ(ring_[a.write_row], truth_[a.overwritten]);
            EXPECT_EQ(a.journaled, plane.rollback_max() != 0);
            if (a.journaled) journal_[a.journal_row] = ring_[a.write_row];
        }
        truth_.push_back(++serial_);
        ring_[a.write_row] = serial_;
    }

    // The query at the newest position sees exactly the rows an unbounded cache and a mask show.
    void check_newest_view() const {
        const uint64_t p = truth_.size() - 1;
        const KvView v = plane.view(p);
        uint64_t seen = 0;
        for (uint64_t key = 0; key <= p; ++key) {
            if (plane.is_local() && p - key >= plane.window()) continue;  // the mask
            ASSERT_GE(key, v.first_position);
            const uint64_t row = (v.first_row + (key - v.first_position)) % plane.capacity();
            ASSERT_EQ(ring_[row], truth_[key]) << "position " << p << ", key " << key;
            ++seen;
        }
        ASSERT_EQ(seen, v.count);
        ASSERT_EQ(ring_[v.write_row], truth_[p]);
        ASSERT_EQ(v.wrapped, plane.is_local() && p >= plane.window());
    }

    // Before the store: the visible rows except the query's own are there already (or, in a ring
    // read before the store, are not the row about to go).
    void check_next_view() const {
        const uint64_t p = truth_.size();
        const KvView v = plane.view(p);
        ASSERT_EQ(v.position, p);
        ASSERT_EQ(v.write_row, plane.plan_append().write_row);
        for (uint64_t i = 0; i + 1 < v.count; ++i) {
            const uint64_t row = (v.first_row + i) % plane.capacity();
            ASSERT_EQ(ring_[row], truth_[v.first_position + i]);
            ASSERT_NE(row, v.write_row);
        }
    }

    // Whether every row that the shortened sequence would hold still exists somewhere.
    bool can_roll_back(uint64_t n) const {
        if (n > truth_.size()) return false;
        const uint64_t next = truth_.size() - n;
        const uint64_t first =
            plane.is_local() && next > plane.window() ? next - plane.window() : 0;
        for (uint64_t p = first; p < next; ++p) {
            if (std::find(ring_.begin(), ring_.end(), truth_[p]) == ring_.end() &&
                std::find(journal_.begin(), journal_.end(), truth_[p]) == journal_.end()) {
                return false;
            }
        }
        return true;
    }

    void roll_back(uint64_t n) {
        for (const KvMove& m : plane.plan_rollback(n)) {
            EXPECT_EQ(journal_[m.journal_row], truth_[m.position]);
            ring_[m.row] = journal_[m.journal_row];
        }
        plane.rollback(n);
        truth_.resize(truth_.size() - n);
    }

    uint64_t size() const { return truth_.size(); }
    KvPlane plane;

  private:
    std::vector<uint64_t> truth_;  // unbounded
    std::vector<uint64_t> ring_;
    std::vector<uint64_t> journal_;
    uint64_t serial_ = 0;
};

void exercise(uint64_t capacity, uint64_t window, uint32_t rollback_max, uint64_t seed,
              uint64_t positions) {
    SCOPED_TRACE("window " + std::to_string(window) + ", capacity " + std::to_string(capacity) +
                 ", journal " + std::to_string(rollback_max));
    Random random(seed);
    Rows rows(capacity, window, rollback_max);
    uint64_t rolled = 0;
    uint64_t refused = 0;
    for (int step = 0; step < 4000 && rows.size() < positions; ++step) {
        rows.check_next_view();
        rows.append();
        rows.check_newest_view();
        if (testing::Test::HasFailure()) return;
        if (random.below(6) != 0) continue;
        // Up to a little more than the journal and the spare rows can give.
        const uint64_t n = random.below(rollback_max + (window != 0 ? capacity - window : 0) + 4);
        const State before = state(rows.plane);
        if (rows.can_roll_back(n)) {
            rows.roll_back(n);
            ++rolled;
            if (rows.size() != 0) rows.check_newest_view();
        } else {
            EXPECT_THROW((void)rows.plane.plan_rollback(n), RollbackError);
            EXPECT_THROW(rows.plane.rollback(n), RollbackError);
            EXPECT_EQ(state(rows.plane), before);
            ++refused;
        }
        if (testing::Test::HasFailure()) return;
    }
    // Every kind of step has happened, wherever it can: without a journal a full ring takes
    // nothing back.
    EXPECT_GT(rolled, rollback_max == 0 ? 0U : 10U);
    EXPECT_GT(refused, 0U);
}

TEST(KvPlane, RingAgainstAnUnboundedCache) {
    uint64_t seed = 1;
    for (const uint64_t window : {1U, 2U, 3U, 8U, 16U}) {
        const uint64_t positions = std::max<uint64_t>(25 * window, 400);
        for (const uint32_t journal : {0U, 1U, 3U, 8U, 64U}) {
            exercise(window, window, journal, ++seed, positions);
            exercise(window + 4, window, journal, ++seed, positions);  // several rows at once
        }
    }
}

TEST(KvPlane, GlobalPlaneAgainstAnUnboundedCache) { exercise(400, 0, 0, 99, 300); }

TEST(KvPlane, PlainRunAroundTheWindow) {
    // No rollbacks: rows go to position % window, and the oldest visible key is p - window + 1.
    KvPlane plane(16, 16, 64);
    for (uint64_t p = 0; p < 81; ++p) {
        const KvView v = plane.view(p);
        EXPECT_EQ(v.write_row, p % 16);
        EXPECT_EQ(v.first_position, p < 16 ? 0 : p - 15);
        EXPECT_EQ(v.count, std::min<uint64_t>(p + 1, 16));
        EXPECT_EQ(v.wrapped, p >= 16);
        const KvAppend a = plane.append();
        EXPECT_EQ(a.write_row, p % 16);
        EXPECT_EQ(a.overwrites, p >= 16);
        EXPECT_EQ(a.overwritten, p < 16 ? 0 : p - 16);
    }
    EXPECT_EQ(state(plane), (State{16, 65, 1, 64}));
}

TEST(KvPlane, ViewsOfRowsThatAreGone) {
    KvPlane plane(8, 8, 4);
    for (int i = 0; i < 20; ++i) plane.append();
    EXPECT_NO_THROW((void)plane.view(20));
    EXPECT_NO_THROW((void)plane.view(19));
    EXPECT_THROW((void)plane.view(18), std::logic_error);  // its oldest key was overwritten
    EXPECT_THROW((void)plane.view(21), std::logic_error);
    EXPECT_THROW(KvPlane(7, 8, 4), std::logic_error);
    EXPECT_THROW(KvPlane(0, 0, 4), std::logic_error);
}

TEST(KvPlane, RestoreIsWhereARunWouldBe) {
    for (const uint64_t window : {1U, 2U, 3U, 8U, 16U}) {
        KvPlane run(window, window, 8);
        for (uint64_t length = 0; length <= 5 * window; ++length) {
            KvPlane restored(window, window, 8);
            restored.restore(length, 8);
            EXPECT_EQ(state(restored), state(run)) << "length " << length;
            restored.restore(length);
            EXPECT_EQ(restored.journal_length(), 0U);
            EXPECT_EQ(restored.next_position(), length);
            run.append();
        }
    }
}

Geometry small_geometry() {
    Geometry g;
    g.layers = 8;
    g.heads = 8;
    g.kv_heads = 2;
    g.head_dim = 64;
    g.window = 16;
    g.context = 256;
    for (uint32_t l = 0; l < g.layers; ++l) g.is_local.push_back(l % 4 != 3);
    return g;
}

std::vector<State> states(const KvPlanes& planes) {
    std::vector<State> out;
    for (size_t l = 0; l < planes.layers(); ++l) out.push_back(state(planes.plane(l)));
    return out;
}

std::string fact_of(const Error& error, const std::string& name) {
    for (const auto& [key, value] : error.facts()) {
        if (key == name) return value;
    }
    return "";
}

TEST(KvPlanes, ShapesAndBytes) {
    const KvPlanes planes(small_geometry(), 100, KvType::F16);
    EXPECT_EQ(planes.layers(), 8U);
    EXPECT_EQ(planes.plane(0).capacity(), 16U);
    EXPECT_EQ(planes.plane(3).capacity(), 100U);
    EXPECT_FALSE(planes.plane(3).is_local());
    EXPECT_EQ(planes.row_bytes(), 256U);
    EXPECT_EQ(planes.plane_bytes(0), 4096U);
    EXPECT_EQ(planes.plane_bytes(7), 25600U);
    EXPECT_EQ(planes.journal_bytes(0), 64U * 256);
    EXPECT_EQ(planes.journal_bytes(3), 0U);
    EXPECT_EQ(KvPlanes(small_geometry(), 100, KvType::F32).row_bytes(), 512U);
}

TEST(KvPlanes, SixtyFourRowsBackAndNotOneMore) {
    KvPlanes planes(small_geometry(), 256, KvType::F16);
    for (int i = 0; i < 150; ++i) planes.append();
    const std::vector<State> before = states(planes);
    try {
        planes.rollback(65);
        FAIL() << "rolled back 65 rows";
    } catch (const RollbackError& error) {
        EXPECT_EQ(fact_of(error, "asked"), "65");
        EXPECT_EQ(fact_of(error, "journal"), "64");
    }
    EXPECT_THROW((void)planes.plan_rollback(65), RollbackError);
    EXPECT_EQ(states(planes), before);
    EXPECT_EQ(planes.position(), 150U);

    // 64: each of the six rings brings home a whole window; the 48 rows after it are not wanted.
    const std::vector<KvPlanes::Move> moves = planes.plan_rollback(64);
    EXPECT_EQ(moves.size(), 6U * 16);
    for (const KvPlanes::Move& m : moves) EXPECT_TRUE(planes.plane(m.layer).is_local());
    planes.rollback(64);
    EXPECT_EQ(planes.position(), 86U);
    EXPECT_EQ(planes.plane(0).origin_logical(), 70U);
    EXPECT_EQ(planes.plane(0).journal_length(), 0U);
    EXPECT_EQ(planes.plane(3).length(), 86U);
    EXPECT_THROW(planes.rollback(1), RollbackError);  // the journal is used up
    planes.append();
    EXPECT_NO_THROW(planes.rollback(1));
    planes.truncate(0);  // an empty sequence needs no row back
    planes.reset();
    EXPECT_EQ(states(planes), states(KvPlanes(small_geometry(), 256, KvType::F16)));
}

TEST(KvPlanes, AllOrNothing) {
    KvPlanes planes(small_geometry(), 40, KvType::F16, 4);
    for (int i = 0; i < 40; ++i) planes.append();
    const std::vector<State> before = states(planes);
    try {
        planes.append();
        FAIL() << "appended past the context";
    } catch (const ContextFullError& error) {
        EXPECT_EQ(fact_of(error, "position"), "40");
        EXPECT_EQ(fact_of(error, "context"), "40");
    }
    EXPECT_THROW((void)planes.plan_append(), ContextFullError);
    EXPECT_THROW(planes.rollback(41), RollbackError);
    EXPECT_THROW(planes.rollback(5), RollbackError);
    EXPECT_THROW(planes.truncate(41), RollbackError);
    EXPECT_THROW(planes.truncate(35), RollbackError);
    EXPECT_THROW(planes.restore(41), ContextFullError);
    EXPECT_EQ(states(planes), before);
    planes.truncate(36);
    EXPECT_EQ(planes.position(), 36U);
    EXPECT_EQ(planes.plan_append().size(), 8U);
    planes.reset();
    EXPECT_EQ(states(planes), states(KvPlanes(small_geometry(), 40, KvType::F16, 4)));
}

// A global first layer could go back any way; the ring behind it decides.
TEST(KvPlanes, TheFirstLayerWaitsForTheLast) {
    Geometry g = small_geometry();
    g.is_local = {false, false, false, false, false, false, false, true};
    KvPlanes planes(g, 256, KvType::F16, 8);
    for (int i = 0; i < 100; ++i) planes.append();
    const std::vector<State> before = states(planes);
    EXPECT_THROW(planes.rollback(9), RollbackError);
    EXPECT_EQ(states(planes), before);
    EXPECT_EQ(planes.position(), 100U);
    planes.rollback(8);
    EXPECT_EQ(planes.plane(0).length(), 92U);
}

// Before the ring has lost a row, any length can be taken back: nothing needs the journal.
TEST(KvPlanes, TruncationWithinTheWindow) {
    KvPlanes planes(small_geometry(), 256, KvType::F16, 0);
    for (int i = 0; i < 16; ++i) planes.append();
    EXPECT_TRUE(planes.plan_truncate(1).empty());
    planes.truncate(1);
    EXPECT_EQ(planes.position(), 1U);
    for (size_t l = 0; l < planes.layers(); ++l) EXPECT_EQ(planes.plane(l).length(), 1U);
}

TEST(KvPlanes, AModelOfLocalLayersStillEndsAtItsContext) {
    Geometry g = small_geometry();
    g.is_local.assign(8, true);
    KvPlanes planes(g, 20, KvType::F16);
    for (int i = 0; i < 20; ++i) planes.append();
    EXPECT_THROW(planes.append(), ContextFullError);
}

TEST(KvPlanes, ImpossibleContexts) {
    EXPECT_THROW(KvPlanes(small_geometry(), 0, KvType::F16), ConfigError);
    EXPECT_THROW(KvPlanes(small_geometry(), 257, KvType::F16), ConfigError);
    EXPECT_THROW(model::memory_estimate(small_geometry(), 257, KvType::F16, 0), ConfigError);
}

// The published model's own arithmetic: 1,024 bytes per token and layer at f16.
TEST(KvPlanes, MemoryOfThePublishedModel) {
    Geometry g;
    g.layers = 52;
    g.heads = 32;
    g.kv_heads = 2;
    g.head_dim = 128;
    g.window = 2048;
    g.context = 131072;
    for (uint32_t l = 0; l < g.layers; ++l) g.is_local.push_back(l % 4 != 3);
    const model::MemoryEstimate m = model::memory_estimate(g, 131072, KvType::F16, 1000);
    EXPECT_EQ(m.weights_mapped, 1000U);
    EXPECT_EQ(m.kv_local, uint64_t{78} << 20);
    EXPECT_EQ(m.kv_global, uint64_t{13312} * 131072);
    EXPECT_EQ(m.journal, uint64_t{39} * 64 * 1024);
    EXPECT_EQ(m.shadow, uint64_t{2} << 20);
    EXPECT_EQ(m.total(), 1000 + m.kv_local + m.kv_global + m.journal + m.shadow);
    EXPECT_EQ(model::memory_estimate(g, 131072, KvType::F32, 1000).kv(), 2 * m.kv());

    // The estimate is what the planes add up to.
    const KvPlanes planes(g, 131072, KvType::F16);
    uint64_t rows = 0;
    uint64_t journal = 0;
    for (size_t l = 0; l < planes.layers(); ++l) {
        rows += 2 * planes.plane_bytes(l);
        journal += 2 * planes.journal_bytes(l);
    }
    EXPECT_EQ(rows, m.kv_local + m.kv_global);
    EXPECT_EQ(journal, m.journal);
}

}  // namespace
}  // namespace muser::test
