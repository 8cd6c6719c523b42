#include "device/emulator/threadgroup.h"

#include <bit>
#include <cstring>

#include "device/emulator/lane_operations.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace muser::emulator {

// Where a lane stands: the byte before the return address lies in the call itself.
#define MUSER_SITE (static_cast<const char*>(__builtin_return_address(0)) - 1)

namespace {

thread_local Lane* t_lane = nullptr;

// The runnable lane after `index`, cyclically; 32 when there is none.
uint32_t next_runnable(const SimdGroup& simd, uint32_t index) {
    if (simd.runnable == 0) return 32;
    const uint32_t above = index == 31 ? 0 : simd.runnable & (0xfffffffeu << index);
    return static_cast<uint32_t>(std::countr_zero(above != 0 ? above : simd.runnable));
}

void resume(Fiber& from, SimdGroup& simd, uint32_t next) {
    if (next == 32) {
        t_lane = nullptr;
        switch_fiber(from, simd.scheduler);
    } else {
        t_lane = &simd.lanes[next];
        switch_fiber(from, t_lane->fiber);
    }
}

// Lets the other lanes come to the same operation. A lane continues when every other one has
// either begun it, too, or waits elsewhere.
void rotate(Lane& lane) {
    const uint32_t next = next_runnable(*lane.simd, lane.index);
    if (next != lane.index) resume(lane.fiber, *lane.simd, next);
    t_lane = &lane;
}

// Posts a value for the SIMD operation that begins here; returns the set it is in.
uint32_t post(Lane& lane, uint32_t value, const void* site) {
    const uint32_t set = lane.operations & 1;
    lane.simd->values[set][lane.index] = value;
    lane.simd->sites[set][lane.index] = site;
    ++lane.operations;
    rotate(lane);
    return set;
}

// A lane that never came to this operation is an error: its value does not exist.
bool has_posted(const Lane& lane, uint32_t source, uint32_t set, const void* site) {
    const SimdGroup& simd = *lane.simd;
    const bool came = source < simd.width && simd.lanes[source].operations >= lane.operations;
    const bool elsewhere = came && simd.group->strict() && simd.sites[set][source] != site;
    if (came && !elsewhere) return true;
    GroupFault fault;
    fault.kind = GroupFault::Kind::divergent_simd;
    fault.lane = lane.thread;
    fault.other = lane.thread - lane.index + source;
    fault.site = site;
    if (elsewhere) {
        fault.other_site = simd.sites[set][source];
    } else if (source < simd.width) {
        fault.other_site = simd.lanes[source].barrier_site;
    }
    simd.group->report(fault);
    return false;
}

}  // namespace

Lane* current_lane() { return t_lane; }

std::string GroupFault::text() const {
    switch (kind) {
        case Kind::none:
            break;
        case Kind::divergent_barrier:
            return "threads " + std::to_string(lane) + " and " + std::to_string(other) +
                   " of a threadgroup disagree about a barrier";
        case Kind::divergent_simd:
            return "thread " + std::to_string(lane) +
                   " takes part in a SIMD operation that thread " + std::to_string(other) +
                   " does not reach";
        case Kind::stopped:
            return "thread " + std::to_string(lane) + " was stopped at an access outside memory";
        case Kind::too_much_memory:
            return "a threadgroup declares more than " + std::to_string(other) +
                   " bytes of threadgroup memory";
    }
    return {};
}

Threadgroup::Threadgroup(uint32_t max_threads)
    : max_threads_(max_threads),
      stacks_(max_threads),
      lanes_(max_threads),
      simds_((max_threads + 31) / 32),
      arena_(new std::byte[kArenaBytes]) {}

void Threadgroup::start(const GroupLaunch& launch, uint64_t serial, bool strict) {
    launch_ = launch;
    serial_ = serial;
    strict_ = strict;
    fault_ = {};
    arrays_.clear();
    arena_used_ = declared_bytes_ = 0;
    threadgroup_epoch_ = 0;
    device_epoch_ = 0;
    busy_ = true;
    // What a kernel has not written must not look like a value.
    std::memset(arena_.get(), 0xa5, kArenaBytes);
    for (uint32_t s = 0; s * 32 < launch.threads; ++s) {
        SimdGroup& simd = simds_[s];
        simd.group = this;
        simd.lanes = &lanes_[s * 32];
        simd.width = launch.threads - s * 32 < 32 ? launch.threads - s * 32 : 32;
        simd.runnable = simd.width == 32 ? 0xffffffffu : (1u << simd.width) - 1;
        for (uint32_t i = 0; i < simd.width; ++i) {
            Lane& lane = simd.lanes[i];
            lane = {};
            lane.simd = &simd;
            lane.index = i;
            lane.thread = s * 32 + i;
            lane.state = Lane::State::running;
            std::byte* end = stacks_.end(lane.thread);
#if defined(__SANITIZE_ADDRESS__)
            // A stopped lane leaves its frames behind.
            __asan_unpoison_memory_region(end - FiberStacks::kBytes / 2, FiberStacks::kBytes / 2);
#endif
            prepare_fiber(lane.fiber, end, &Threadgroup::lane_entry);
        }
    }
}

void Threadgroup::lane_entry() {
    Lane& lane = *t_lane;
    Threadgroup& group = *lane.simd->group;
    LanePosition at;
    at.group = group.launch_.group;
    at.thread = lane.thread;
    at.lane = lane.index;
    at.simd = lane.thread / 32;
    // On the lane's own stack, which the tracer leaves alone.
    const std::array<void*, kMaxBuffers> buffers = group.launch_.buffers;
    group.launch_.kernel->run(group.launch_.args, buffers.data(), at);
    lane.state = Lane::State::done;
    lane.simd->runnable &= ~(1u << lane.index);
    resume(lane.fiber, *lane.simd, next_runnable(*lane.simd, lane.index));
    __builtin_unreachable();
}

void Threadgroup::run(SimdGroup& simd) {
    resume(simd.scheduler, simd, static_cast<uint32_t>(std::countr_zero(simd.runnable)));
}

bool Threadgroup::step(uint64_t pick) {
    const uint32_t count = (launch_.threads + 31) / 32;
    for (uint32_t i = 0; i < count && busy_; ++i) {
        SimdGroup& simd = simds_[(pick + i) % count];
        if (simd.runnable == 0) continue;
        run(simd);
        if (fault_.kind != GroupFault::Kind::none) busy_ = false;
        return busy_;
    }
    return busy_ && pass_barrier();
}

// All lanes wait or have returned. Either they are all at one barrier, or this is the end.
bool Threadgroup::pass_barrier() {
    const Lane* waiting = nullptr;
    const Lane* returned = nullptr;
    for (uint32_t i = 0; i < launch_.threads; ++i) {
        const Lane*& slot = lanes_[i].state == Lane::State::barrier ? waiting : returned;
        if (slot == nullptr) slot = &lanes_[i];
    }
    if (waiting == nullptr) {
        busy_ = false;
        return false;
    }
    if (returned != nullptr) {
        GroupFault fault;
        fault.kind = GroupFault::Kind::divergent_barrier;
        fault.lane = waiting->thread;
        fault.other = returned->thread;
        fault.site = waiting->barrier_site;
        report(fault);
        busy_ = false;
        return false;
    }
    for (uint32_t i = 0; i < launch_.threads; ++i) {
        Lane& lane = lanes_[i];
        if (lane.barrier_flags != waiting->barrier_flags ||
            (strict_ && lane.barrier_site != waiting->barrier_site)) {
            GroupFault fault;
            fault.kind = GroupFault::Kind::divergent_barrier;
            fault.lane = waiting->thread;
            fault.other = lane.thread;
            fault.site = waiting->barrier_site;
            fault.other_site = lane.barrier_site;
            report(fault);
            busy_ = false;
            return false;
        }
        lane.state = Lane::State::running;
        lane.simd->runnable |= 1u << lane.index;
    }
    if ((waiting->barrier_flags & 1u) != 0) ++device_epoch_;
    if ((waiting->barrier_flags & 2u) != 0) ++threadgroup_epoch_;
    return true;
}

void* Threadgroup::declare_array(Lane& lane, size_t bytes, size_t alignment, const char* name) {
    const uint32_t index = lane.arrays++;
    if (index == arrays_.size()) {
        // Guard space between arrays, so that running over one does not hit the next.
        const size_t aligned = (arena_used_ + 64 + alignment - 1) / alignment * alignment;
        declared_bytes_ = (declared_bytes_ + alignment - 1) / alignment * alignment + bytes;
        if (declared_bytes_ > launch_.kernel->memory_bytes || aligned + bytes + 64 > kArenaBytes) {
            GroupFault fault;
            fault.kind = GroupFault::Kind::too_much_memory;
            fault.lane = lane.thread;
            fault.other = launch_.kernel->memory_bytes;
            stop(fault);
        }
        arrays_.push_back({arena_.get() + aligned, bytes, name});
        arena_used_ = aligned + bytes;
    }
    return arrays_[index].begin;
}

void Threadgroup::report(const GroupFault& fault) {
    if (fault_.kind == GroupFault::Kind::none) fault_ = fault;
}

// Leaves the threadgroup as it is: nothing of it will run again.
void Threadgroup::stop(const GroupFault& fault) {
    report(fault);
    Lane& lane = *t_lane;
    t_lane = nullptr;
    switch_fiber(lane.fiber, lane.simd->scheduler);
    __builtin_unreachable();
}

[[gnu::noinline]] void lane_barrier(unsigned flags) {
    Lane& lane = *t_lane;
    lane.state = Lane::State::barrier;
    lane.barrier_flags = flags;
    lane.barrier_site = MUSER_SITE;
    lane.simd->runnable &= ~(1u << lane.index);
    resume(lane.fiber, *lane.simd, next_runnable(*lane.simd, lane.index));
}

[[gnu::noinline]] uint32_t lane_shuffle(uint32_t value, uint32_t operand, bool exclusive_or) {
    Lane& lane = *t_lane;
    const void* site = MUSER_SITE;
    const uint32_t set = post(lane, value, site);
    const uint32_t source = (exclusive_or ? lane.index ^ operand : operand) & 31u;
    return has_posted(lane, source, set, site) ? lane.simd->values[set][source] : 0xa5a5a5a5u;
}

[[gnu::noinline]] uint32_t lane_max(uint32_t value) {
    Lane& lane = *t_lane;
    const void* site = MUSER_SITE;
    const uint32_t set = post(lane, value, site);
    uint32_t largest = value;
    for (uint32_t i = 0; i < lane.simd->width; ++i) {
        if (!has_posted(lane, i, set, site)) return 0xa5a5a5a5u;
        const uint32_t other = lane.simd->values[set][i];
        if (other > largest) largest = other;
    }
    return largest;
}

void* lane_threadgroup_array(size_t bytes, size_t alignment, const char* name) {
    Lane& lane = *t_lane;
    return lane.simd->group->declare_array(lane, bytes, alignment, name);
}

}  // namespace muser::emulator
