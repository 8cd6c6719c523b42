#include "device/cpu/pool.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "contract/ftz.h"

namespace muser::device::cpu {
namespace {

int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Returns open_ once it is not `seen` any more. Some ten microseconds of pauses cover the usual
// wait for another thread's last task; after that the processor is better given to whoever needs
// it.
uint32_t await_change(const std::atomic<uint32_t>& open, uint32_t seen) {
    constexpr int kPauses = 256;
    for (int i = 0;; ++i) {
        const uint32_t value = open.load(std::memory_order_acquire);
        if (value != seen) return value;
        if (i < kPauses) {
            pause();
        } else {
            std::this_thread::yield();
        }
    }
}

template <class Better>
void keep(std::atomic<int64_t>& best, int64_t value, Better better) {
    int64_t old = best.load(std::memory_order_relaxed);
    while (better(value, old) &&
           !best.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
    }
}

void run_units(const Plan& plan, const Item& item, uint64_t begin, uint64_t end) {
    if (plan.times == nullptr) {
        item.kernel->run(item.call, begin, end);
        return;
    }
    ItemTime& time = plan.times[static_cast<size_t>(&item - plan.items.data())];
    keep(time.start, now_ns(), std::less<>());
    item.kernel->run(item.call, begin, end);
    keep(time.end, now_ns(), std::greater<>());
}

}  // namespace

Pool::Pool(int threads) {
    threads_.reserve(static_cast<size_t>(threads));
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { thread_main(); });
}

Pool::~Pool() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Pool::submit(std::shared_ptr<Job> job) {
    {
        std::lock_guard lock(mutex_);
        queue_.push_back(std::move(job));
    }
    wake_.notify_all();
}

void Pool::thread_main() {
    contract::set_float_mode(contract::kContractFloatMode);
    uint64_t taken = 0;  // number of the last job this thread took part in
    std::unique_lock lock(mutex_);
    while (true) {
        wake_.wait(lock, [&] { return current_ ? number_ != taken : stop_ || !queue_.empty(); });
        bool opener = false;
        if (!current_) {
            if (queue_.empty()) return;  // stopped, and nothing left
            current_ = std::move(queue_.front());
            queue_.pop_front();
            ++number_;
            opener = true;
        }
        taken = number_;
        const std::shared_ptr<Job> job = current_;
        lock.unlock();
        if (opener) open(*job);
        take_part(*job);
        lock.lock();
    }
}

void Pool::open(Job& job) {
    job.plan_ = job.prepare(threads());
    const std::vector<Phase>& phases = job.plan_.phases;
    const bool shared =
        std::any_of(phases.begin(), phases.end(), [](const Phase& phase) { return phase.shared; });
    // Nothing to share: the others may go back to sleep, or on waiting for the next job.
    if (!shared) job.open_.store(static_cast<uint32_t>(phases.size()), std::memory_order_release);
    advance(job, 0);
}

void Pool::take_part(Job& job) {
    uint32_t phase = await_change(job.open_, Job::kPreparing);
    while (phase != job.plan_.phases.size()) {
        if (run_tasks(job, phase)) advance(job, phase + 1);
        phase = await_change(job.open_, phase);
    }
}

// Pulls tasks until there are none. True for the thread that did the phase's last one.
bool Pool::run_tasks(Job& job, uint32_t index) {
    const Plan& plan = job.plan_;
    const Phase& phase = plan.phases[index];
    PhaseState& state = plan.states[index];
    const Item* item = &plan.items[phase.first_item];
    const Item* const last = item + phase.item_count - 1;
    uint64_t done = 0;
    while (true) {
        const uint64_t task = state.next_task.fetch_add(1, std::memory_order_relaxed);
        if (task >= phase.tasks) break;
        while (item != last && task >= (item + 1)->first_task) ++item;
        const uint64_t begin = (task - item->first_task) * item->units_per_task;
        const uint64_t end = begin + item->units_per_task;
        run_units(plan, *item, begin, end < item->units ? end : item->units);
        ++done;
    }
    if (done == 0) return false;
    return state.tasks_left.fetch_sub(done, std::memory_order_acq_rel) == done;
}

// By the one thread that ended the phase before: runs what is too small to share and opens the next
// shared phase, or ends the job.
void Pool::advance(Job& job, uint32_t phase) {
    const std::vector<Phase>& phases = job.plan_.phases;
    for (; phase < phases.size() && !phases[phase].shared; ++phase) {
        run_alone(job.plan_, phases[phase]);
    }
    if (phase == phases.size()) {
        end(job);
    } else {
        job.open_.store(phase, std::memory_order_release);
    }
}

void Pool::run_alone(const Plan& plan, const Phase& phase) {
    const Item* const first = &plan.items[phase.first_item];
    for (const Item* item = first; item != first + phase.item_count; ++item) {
        run_units(plan, *item, 0, item->units);
    }
}

void Pool::end(Job& job) {
    job.finish(job.plan_);
    bool more = false;
    {
        std::lock_guard lock(mutex_);
        current_ = nullptr;
        more = stop_ || !queue_.empty();
    }
    job.open_.store(static_cast<uint32_t>(job.plan_.phases.size()), std::memory_order_release);
    // Threads that this job sent back to sleep have not seen what was submitted meanwhile.
    if (more) wake_.notify_all();
}

}  // namespace muser::device::cpu
