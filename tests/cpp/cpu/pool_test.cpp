// The pool: every unit once, epochs in order, jobs in order, at any number of threads, also many
// more than there are processors. The thread sanitizer's build runs the same.
#include "device/cpu/pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "contract/ftz.h"
#include "support.h"

namespace muser::cpu_test {
namespace {

using device::cpu::Call;
using device::cpu::Job;
using device::cpu::KernelImpl;
using device::cpu::Plan;
using device::cpu::Planner;
using device::cpu::Pool;
using device::cpu::Work;

// What all jobs of a test share.
struct Watch {
    std::atomic<int> mistakes{0};
    std::atomic<int> running{0};
    std::atomic<int> finished{0};
};

struct Epoch {
    std::atomic<uint64_t> done{0};
    uint64_t expected = 0;
};

// A dispatch: `data` is plain memory on purpose. Only the pool orders what is written to it, so the
// sanitizer sees a missing order as a race.
struct Dispatch {
    Watch* watch = nullptr;
    Epoch* own = nullptr;
    const Epoch* before = nullptr;
    const std::vector<uint64_t>* input = nullptr;
    std::vector<uint64_t>* output = nullptr;
    uint64_t first = 0;  // its part of output
    Work work = {};
};

Work dispatch_work(const Call& call) { return static_cast<const Dispatch*>(call.args)->work; }

void dispatch_run(const Call& call, uint64_t begin, uint64_t end) {
    const auto& d = *static_cast<const Dispatch*>(call.args);
    if (contract::float_mode() != contract::kContractFloatMode) ++d.watch->mistakes;
    if (d.before != nullptr && d.before->done.load() != d.before->expected) ++d.watch->mistakes;
    uint64_t sum = 0;
    for (uint64_t x : *d.input) sum += x;
    for (uint64_t unit = begin; unit < end; ++unit) (*d.output)[d.first + unit] += sum + unit;
    d.own->done += end - begin;
}

constexpr KernelImpl kDispatch = {"dispatch", dispatch_work, dispatch_run};

// Epochs that each read all that the one before wrote.
class ChainJob : public Job {
  public:
    ChainJob(Watch& watch, uint64_t seed) : watch_(watch) {
        Random random(seed);
        const uint32_t count = random.between(0, 12);
        epochs_ = std::vector<Epoch>(count);
        data_.resize(count + 1);
        data_[0] = {1};
        for (uint32_t e = 0; e < count; ++e) {
            const uint32_t parts = random.between(1, 4);
            for (uint32_t p = 0; p < parts; ++p) {
                Dispatch d;
                d.watch = &watch;
                d.own = &epochs_[e];
                d.before = e == 0 ? nullptr : &epochs_[e - 1];
                d.input = &data_[e];
                d.output = &data_[e + 1];
                d.first = epochs_[e].expected;
                d.work = {random.one_in(5) ? random.below(2) : random.between(1, 60),
                          random.pick({1u, 100u, 3000u})};
                epochs_[e].expected += d.work.units;
                dispatches_.push_back(d);
                epoch_of_.push_back(e);
            }
            data_[e + 1].resize(epochs_[e].expected);
        }
    }

    Plan prepare(int threads) noexcept override {
        if (watch_.running.fetch_add(1) != 0) ++watch_.mistakes;
        Planner planner(threads);
        for (size_t i = 0; i < dispatches_.size(); ++i) {
            if (i != 0 && epoch_of_[i] != epoch_of_[i - 1]) planner.end_epoch();
            planner.add(kDispatch, {&dispatches_[i], nullptr}, 0);
        }
        return planner.take(false);
    }
    void finish(const Plan&) noexcept override {
        // Each cell was written once, from a whole predecessor.
        for (size_t e = 0; e + 1 < data_.size(); ++e) {
            uint64_t sum = 0;
            for (uint64_t x : data_[e]) sum += x;
            for (size_t i = 0; i < dispatches_.size(); ++i) {
                if (epoch_of_[i] != e) continue;
                const Dispatch& d = dispatches_[i];
                for (uint64_t unit = 0; unit < d.work.units; ++unit) {
                    if (data_[e + 1][d.first + unit] != sum + unit) ++watch_.mistakes;
                }
            }
        }
        --watch_.running;
        ++watch_.finished;
    }

  private:
    Watch& watch_;
    std::vector<Epoch> epochs_;
    std::vector<std::vector<uint64_t>> data_;
    std::vector<Dispatch> dispatches_;
    std::vector<uint32_t> epoch_of_;
};

class PoolThreads : public testing::TestWithParam<int> {};

TEST_P(PoolThreads, RunsEveryUnitOnceInOrder) {
    Watch watch;
    {
        Pool pool(GetParam());
        EXPECT_EQ(pool.threads(), GetParam());
        for (uint64_t seed = 0; seed < 400; ++seed) {
            pool.submit(std::make_shared<ChainJob>(watch, seed));
        }
        // The destructor finishes what is queued.
    }
    EXPECT_EQ(watch.finished.load(), 400);
    EXPECT_EQ(watch.mistakes.load(), 0);
}

TEST_P(PoolThreads, WakesForEachJobAfterIdling) {
    Watch watch;
    Pool pool(GetParam());
    for (int i = 0; i < 200; ++i) {
        pool.submit(std::make_shared<ChainJob>(watch, 1000 + static_cast<uint64_t>(i)));
        while (watch.finished.load() != i + 1) std::this_thread::yield();
    }
    EXPECT_EQ(watch.mistakes.load(), 0);
}

TEST_P(PoolThreads, TakesJobsFromSeveralThreads) {
    Watch watch;
    {
        Pool pool(GetParam());
        std::vector<std::thread> callers;
        for (uint64_t c = 0; c < 3; ++c) {
            callers.emplace_back([&, c] {
                for (uint64_t i = 0; i < 60; ++i) {
                    pool.submit(std::make_shared<ChainJob>(watch, 100 * c + i));
                }
            });
        }
        for (std::thread& caller : callers) caller.join();
    }
    EXPECT_EQ(watch.finished.load(), 180);
    EXPECT_EQ(watch.mistakes.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Counts, PoolThreads, testing::Values(1, 2, 3, 8, 32));

TEST(Pool, StartsAndStopsWithoutWork) {
    for (int threads : {1, 2, 8}) {
        for (int i = 0; i < 20; ++i) Pool pool(threads);
    }
}

TEST(Pool, LeavesTheCallersFloatModeAlone) {
    const uint64_t before = contract::float_mode();
    Watch watch;
    {
        Pool pool(2);
        pool.submit(std::make_shared<ChainJob>(watch, 5));
    }
    EXPECT_EQ(contract::float_mode(), before);
    EXPECT_EQ(watch.finished.load(), 1);
}

// ---- the planner -------------------------------------------------------------------------------

struct Sized {
    Work work;
};
Work sized_work(const Call& call) { return static_cast<const Sized*>(call.args)->work; }
constexpr KernelImpl kSized = {"sized", sized_work, nullptr};

TEST(Planner, SharesWhatIsWorthItAndJoinsWhatIsNot) {
    const Sized small = {{10, 10}}, large = {{1000, 1000}}, none = {{0, 1000}},
                whole = {{1, 90000}};
    Planner planner(4);
    for (const Sized* epoch : {&small, &small, &none, &large, &whole, &small}) {
        planner.add(kSized, {epoch, nullptr}, 0);
        planner.end_epoch();
    }
    const Plan plan = planner.take(false);
    ASSERT_EQ(plan.phases.size(), 3u);
    EXPECT_FALSE(plan.phases[0].shared);
    EXPECT_EQ(plan.phases[0].item_count, 2u);
    EXPECT_TRUE(plan.phases[1].shared);
    EXPECT_FALSE(plan.phases[2].shared);  // one unit cannot be shared, however long
    EXPECT_EQ(plan.phases[2].item_count, 2u);
    // Tasks cover all units, several per thread.
    const device::cpu::Item& item = plan.items[plan.phases[1].first_item];
    EXPECT_GE(plan.phases[1].tasks * item.units_per_task, item.units);
    EXPECT_GE(plan.phases[1].tasks, 4u * 4u);
    EXPECT_LE(plan.phases[1].tasks, 4u * 16u);
}

TEST(Planner, TakesUnitsTogetherWhereTasksHoldEnough) {
    const Sized many = {{1003, 1000, 8}}, few = {{20, 3000, 8}};
    for (const auto& [sized, expected] : {std::pair{&many, 0u}, std::pair{&few, 1u}}) {
        Planner planner(4);
        planner.add(kSized, {sized, nullptr}, 0);
        const Plan plan = planner.take(false);
        const device::cpu::Item& item = plan.items.front();
        if (expected != 0) {
            EXPECT_EQ(item.units_per_task, expected);
        } else {
            EXPECT_EQ(item.units_per_task % 8, 0u);
        }
        EXPECT_EQ(plan.phases.front().tasks,
                  (item.units + item.units_per_task - 1) / item.units_per_task);
    }
}

TEST(Planner, SharesNothingOnOneThread) {
    const Sized large = {{1000, 1000}};
    Planner planner(1);
    planner.add(kSized, {&large, nullptr}, 0);
    planner.add(kSized, {&large, nullptr}, 0);
    const Plan plan = planner.take(false);
    ASSERT_EQ(plan.phases.size(), 1u);
    EXPECT_FALSE(plan.phases[0].shared);
}

}  // namespace
}  // namespace muser::cpu_test
