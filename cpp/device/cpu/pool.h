// The device's threads. Jobs run one after the other, each on all threads that show up in time.
//
// Idle threads sleep on a condition variable; a submission wakes them once. During a job a thread
// that finds no task left waits for the next phase by pausing, then by yielding. A phase ends when
// its tasks are done, not when all threads have arrived: a thread that the operating system took
// off the processor delays a phase only by the task it holds.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/cpu/plan.h"

namespace muser::device::cpu {

class Job {
  public:
    virtual ~Job() = default;
    // On one of the pool's threads, when the job's turn has come; must not throw. An empty plan
    // ends the job.
    virtual Plan prepare(int threads) noexcept = 0;
    // On one of the pool's threads, after the last task; must not throw.
    virtual void finish(const Plan& plan) noexcept = 0;

  private:
    friend class Pool;
    static constexpr uint32_t kPreparing = UINT32_MAX;

    Plan plan_;
    // The shared phase that is open, kPreparing before the first, plan_.phases.size() at the end.
    // Storing it publishes everything that was done before.
    alignas(64) std::atomic<uint32_t> open_{kPreparing};
};

class Pool {
  public:
    explicit Pool(int threads);
    // Finishes what was submitted.
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return static_cast<int>(threads_.size()); }
    void submit(std::shared_ptr<Job> job);

  private:
    void thread_main();
    void open(Job& job);
    void take_part(Job& job);
    bool run_tasks(Job& job, uint32_t phase);
    void advance(Job& job, uint32_t phase);
    void run_alone(const Plan& plan, const Phase& phase);
    void end(Job& job);

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::shared_ptr<Job>> queue_;
    std::shared_ptr<Job> current_;
    uint64_t number_ = 0;  // of the current job, so that a thread takes part once
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace muser::device::cpu
