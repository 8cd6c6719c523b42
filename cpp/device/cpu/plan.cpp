#include "device/cpu/plan.h"

#include <algorithm>

namespace muser::device::cpu {
namespace {

// An epoch of less work runs on one thread: meeting at its end costs around a microsecond.
constexpr uint64_t kWorthSharing = 5000;
// Tasks a thread gets of an epoch, so that one that starts late or is slow leaves work to others.
constexpr uint64_t kTasksPerThread = 8;
// A shorter task would spend its time in the shared counter.
constexpr uint64_t kShortestTask = 1000;

}  // namespace

void Planner::add(const KernelImpl& kernel, const Call& call, uint32_t label) {
    const Work work = kernel.work(call);
    if (work.units == 0) return;
    Item item;
    item.kernel = &kernel;
    item.call = call;
    item.label = label;
    item.units = work.units;
    plan_.items.push_back(item);
    work_.push_back({work.units, std::max<uint64_t>(1, work.unit_ns), work.together});
}

void Planner::end_epoch() {
    const uint32_t count = static_cast<uint32_t>(plan_.items.size()) - epoch_start_;
    if (count == 0) return;
    uint64_t epoch_ns = 0;
    bool divisible = count > 1;
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t units = plan_.items[epoch_start_ + i].units;
        epoch_ns += units * work_[i].unit_ns;
        divisible = divisible || units > 1;
    }
    if (threads_ > 1 && divisible && epoch_ns >= kWorthSharing) {
        share(epoch_ns);
    } else if (!plan_.phases.empty() && !plan_.phases.back().shared) {
        plan_.phases.back().item_count += count;
    } else {
        plan_.phases.push_back({false, epoch_start_, count, 0});
    }
    epoch_start_ = static_cast<uint32_t>(plan_.items.size());
    work_.clear();
}

void Planner::share(uint64_t epoch_ns) {
    const uint64_t task_ns =
        std::max(kShortestTask, epoch_ns / (static_cast<uint64_t>(threads_) * kTasksPerThread));
    Phase phase;
    phase.shared = true;
    phase.first_item = epoch_start_;
    phase.item_count = static_cast<uint32_t>(plan_.items.size()) - epoch_start_;
    for (uint32_t i = 0; i < phase.item_count; ++i) {
        Item& item = plan_.items[epoch_start_ + i];
        const Work& work = work_[i];
        uint64_t units = std::clamp<uint64_t>(task_ns / work.unit_ns, 1, item.units);
        if (units > work.together) units -= units % work.together;
        item.units_per_task = units;
        item.first_task = phase.tasks;
        phase.tasks += (item.units + item.units_per_task - 1) / item.units_per_task;
    }
    plan_.phases.push_back(phase);
}

Plan Planner::take(bool timed) {
    end_epoch();
    plan_.states = std::make_unique<PhaseState[]>(plan_.phases.size());
    for (size_t i = 0; i < plan_.phases.size(); ++i) {
        plan_.states[i].tasks_left.store(plan_.phases[i].tasks, std::memory_order_relaxed);
    }
    if (timed) plan_.times = std::make_unique<ItemTime[]>(plan_.items.size());
    return std::move(plan_);
}

}  // namespace muser::device::cpu
