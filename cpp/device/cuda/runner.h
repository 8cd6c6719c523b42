// Runs command buffers in order of submission, and tells their end.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/cuda/graph_cache.h"

namespace muser::device::cuda {

class Runner {
  public:
    explicit Runner(GpuRef gpu);
    ~Runner();  // waits for what is in flight
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    CUstream stream() const { return stream_; }
    void submit(std::shared_ptr<const KernelLibrary> library, stream::CommandBufferRef commands);

  private:
    struct Flight {
        stream::CommandBufferRef commands;
        std::shared_ptr<const KernelLibrary> library;
        CUevent start = nullptr, end = nullptr;
        std::vector<CUevent> label_starts, label_ends;
        std::vector<uint32_t> labels;
    };
    void launch(Flight& flight);
    void launch_in_turn(const Flight& flight);  // dispatch by dispatch, no graph
    void launch_timed(Flight& flight);          // closure by closure, an event on either side
    void finish(Flight& flight) noexcept;
    void wait_for_ends() noexcept;
    CUevent take_event();
    double seconds_between(CUevent start, CUevent end) const;

    GpuRef gpu_;
    CUstream stream_ = nullptr;
    GraphCache graphs_;
    std::mutex submitting_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Flight> flights_;
    std::vector<CUevent> events_;  // free ones
    bool closing_ = false;
    std::thread waiter_;
};

}  // namespace muser::device::cuda
