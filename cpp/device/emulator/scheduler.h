// Runs command buffers on one thread: picks threadgroups among the dispatches that the recorded
// order allows, by a seed.
//
// Seed 0 takes them in recorded order, one threadgroup at a time. Any other seed shuffles: the
// order of ready dispatches, of their threadgroups and of the SIMD groups within, with up to eight
// threadgroups of any ready dispatches in flight together.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/emulator/memory.h"
#include "device/emulator/order.h"
#include "device/emulator/threadgroup.h"
#include "device/emulator/tracer.h"

namespace muser::emulator {

// A kernel of this device: the same source, compiled plain and traced.
struct EmulatorKernel : stream::Kernel {
    const KernelEntry* plain = nullptr;
    const KernelEntry* traced = nullptr;  // null in builds without the tracer
};

// splitmix64.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next();
    uint64_t below(uint64_t bound) { return next() % bound; }

  private:
    uint64_t state_;
};

class Scheduler {
  public:
    Scheduler(Memory& memory, uint64_t seed);
    ~Scheduler();  // finishes what was submitted
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    void submit(stream::CommandBufferRef commands);
    // While held, submitted command buffers wait, so that several can be scheduled together
    // whatever the host's timing.
    void hold(bool held);
    // From the next command buffer on. A traced one runs in recorded order.
    void set_seed(uint64_t seed);
    void set_tracing(bool tracing);
    TraceReport take_report();

  private:
    struct Running;

    void work();
    void begin(stream::CommandBufferRef commands);
    void run_ready();
    Node* choose();
    bool start_group(Node* node);
    void finish_group(Running& running);
    void complete(Job* job);
    void fail(Node* node, stream::ErrorCode code, const std::string& message);
    bool check_bindings(const Node& node, std::string& problem) const;

    Memory& memory_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<stream::CommandBufferRef> pending_;
    bool held_ = false;
    bool closing_ = false;
    uint64_t next_seed_;
    bool next_tracing_ = false;
    TraceReport report_;

    // The worker's own.
    OrderGraph graph_;
    Random random_;
    enum class Mode : uint8_t { recorded, priorities, uniform, latest } mode_ = Mode::recorded;
    uint32_t width_ = 1;  // threadgroups in flight
    std::vector<std::unique_ptr<Running>> running_;
    std::unique_ptr<Tracer> tracer_;
    std::thread worker_;
};

}  // namespace muser::emulator
