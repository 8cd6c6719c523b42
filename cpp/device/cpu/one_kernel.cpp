#include "device/cpu/one_kernel.h"

#include <chrono>

namespace muser::device::cpu {
namespace {

using Clock = std::chrono::steady_clock;

class KernelJob : public Job {
  public:
    KernelJob(const KernelImpl& kernel, const Call& call) : kernel_(kernel), call_(call) {}

    Plan prepare(int threads) noexcept override {
        Planner planner(threads);
        planner.add(kernel_, call_, 0);
        start_ = Clock::now();
        return planner.take(false);
    }
    void finish(const Plan&) noexcept override {
        const Clock::time_point end = Clock::now();
        {
            std::lock_guard lock(mutex_);
            seconds_ = std::chrono::duration<double>(end - start_).count();
            done_ = true;
        }
        changed_.notify_all();
    }
    double wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return done_; });
        return seconds_;
    }

  private:
    const KernelImpl& kernel_;
    Call call_;
    Clock::time_point start_;
    std::mutex mutex_;
    std::condition_variable changed_;
    double seconds_ = 0;
    bool done_ = false;
};

}  // namespace

double run_kernel(Pool& pool, const KernelImpl& kernel, const Call& call) {
    const auto job = std::make_shared<KernelJob>(kernel, call);
    pool.submit(job);
    return job->wait();
}

}  // namespace muser::device::cpu
