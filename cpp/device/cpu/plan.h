// What a job runs, phase after phase: dispatches cut into tasks that threads pull.
//
// An epoch is a set of independent dispatches. An epoch worth sharing becomes a phase of its own;
// runs of small epochs become one phase that a single thread runs in order, since handing out a
// microsecond of work costs about that much.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cpu/kernel.h"

namespace muser::device::cpu {

struct Item {
    const KernelImpl* kernel = nullptr;
    Call call = {};
    uint32_t label = 0;
    uint64_t units = 0;
    uint64_t units_per_task = 0;  // shared phases only, as is first_task
    uint64_t first_task = 0;      // within the phase
};

struct Phase {
    bool shared = false;
    uint32_t first_item = 0, item_count = 0;
    uint64_t tasks = 0;
};

// First start and last end of an item, in nanoseconds of the steady clock.
struct ItemTime {
    std::atomic<int64_t> start{INT64_MAX};
    std::atomic<int64_t> end{INT64_MIN};
};

// Each counter on its own cache line: all threads hit the first, one a task.
struct PhaseState {
    alignas(64) std::atomic<uint64_t> next_task{0};
    alignas(64) std::atomic<uint64_t> tasks_left{0};
};

struct Plan {
    std::vector<Item> items;
    std::vector<Phase> phases;
    std::unique_ptr<PhaseState[]> states;  // one per phase
    std::unique_ptr<ItemTime[]> times;     // one per item, where times are asked for
};

class Planner {
  public:
    explicit Planner(int threads) : threads_(threads) {}
    // A dispatch of the current epoch. The call's memory must outlive the plan.
    void add(const KernelImpl& kernel, const Call& call, uint32_t label);
    // What follows depends on what came before.
    void end_epoch();
    Plan take(bool timed);

  private:
    void share(uint64_t epoch_ns);

    int threads_;
    Plan plan_;
    uint32_t epoch_start_ = 0;
    std::vector<Work> work_;  // of the epoch's items
};

}  // namespace muser::device::cpu
