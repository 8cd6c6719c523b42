// One threadgroup in flight: its lanes as fibers, SIMD groups in lockstep where a SIMD operation
// asks for it, all of them at a barrier.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/emulator/fiber.h"
#include "device/emulator/kernel_registry.h"

namespace muser::emulator {

class Threadgroup;
struct SimdGroup;

struct Lane {
    enum class State : uint8_t { running, barrier, done };
    Fiber fiber;
    SimdGroup* simd = nullptr;
    uint32_t index = 0;       // within the SIMD group
    uint32_t thread = 0;      // within the threadgroup
    uint32_t operations = 0;  // SIMD operations begun
    uint32_t arrays = 0;      // threadgroup arrays declared
    State state = State::done;
    unsigned barrier_flags = 0;
    const void* barrier_site = nullptr;
};

struct SimdGroup {
    Threadgroup* group = nullptr;
    Fiber scheduler;  // where to go when no lane can run
    Lane* lanes = nullptr;
    uint32_t width = 0;
    uint32_t runnable = 0;  // bit per lane
    // Two sets, so that a lane may post its next value while others still read this one.
    uint32_t values[2][32] = {};
    const void* sites[2][32] = {};
};

struct ThreadgroupArray {
    std::byte* begin = nullptr;
    size_t bytes = 0;
    const char* name = nullptr;
};

// A launch error inside a threadgroup: lanes that disagree about a barrier or a SIMD operation, an
// access that had to be stopped, or more threadgroup memory than the kernel may have (`other`
// bytes).
struct GroupFault {
    enum class Kind : uint8_t {
        none,
        divergent_barrier,
        divergent_simd,
        stopped,
        too_much_memory
    } kind = Kind::none;
    uint32_t lane = 0, other = 0;
    const void* site = nullptr;
    const void* other_site = nullptr;  // null: that lane has returned
    std::string text() const;
};

// What to run. The arrays stay the owner's.
struct GroupLaunch {
    const KernelEntry* kernel = nullptr;
    const void* args = nullptr;
    std::array<void*, kMaxBuffers> buffers{};
    uint3 group{0, 0, 0};
    uint32_t threads = 1;
};

class Threadgroup {
  public:
    static constexpr size_t kArenaBytes = 64 * 1024;  // more than any kernel's, with guards between

    explicit Threadgroup(uint32_t max_threads);

    // `strict`: lanes meet in the same call of a barrier or SIMD operation, not only in the same
    // number of them. For code whose calls the compiler has not duplicated: the traced kernels.
    void start(const GroupLaunch& launch, uint64_t serial, bool strict);
    // Runs one SIMD group that can run, chosen by `pick`, until all its lanes wait or have
    // returned. False when the threadgroup is finished (or stopped by a fault).
    bool step(uint64_t pick);

    bool busy() const { return busy_; }
    const GroupFault& fault() const { return fault_; }
    const GroupLaunch& launch() const { return launch_; }
    uint64_t serial() const { return serial_; }  // as given to start()
    bool strict() const { return strict_; }
    uint32_t max_threads() const { return max_threads_; }
    const std::vector<ThreadgroupArray>& arrays() const { return arrays_; }
    const std::byte* arena() const { return arena_.get(); }
    bool on_a_stack(const void* address) const { return stacks_.contains(address); }
    // Barriers passed so far that order threadgroup memory, and device memory.
    uint32_t threadgroup_epoch() const { return threadgroup_epoch_; }
    uint32_t device_epoch() const { return device_epoch_; }

    // The rest is called on a lane.
    void* declare_array(Lane& lane, size_t bytes, size_t alignment, const char* name);
    void report(const GroupFault& fault);
    [[noreturn]] void stop(const GroupFault& fault);

  private:
    static void lane_entry();
    void run(SimdGroup& simd);
    bool pass_barrier();

    uint32_t max_threads_;
    FiberStacks stacks_;
    std::vector<Lane> lanes_;
    std::vector<SimdGroup> simds_;
    std::unique_ptr<std::byte[]> arena_;
    size_t arena_used_ = 0, declared_bytes_ = 0;
    std::vector<ThreadgroupArray> arrays_;
    GroupLaunch launch_;
    GroupFault fault_;
    uint64_t serial_ = 0;
    uint32_t threadgroup_epoch_ = 0;
    uint32_t device_epoch_ = 0;
    bool busy_ = false;
    bool strict_ = false;
};

// The lane that runs on this thread, or null.
Lane* current_lane();

}  // namespace muser::emulator
