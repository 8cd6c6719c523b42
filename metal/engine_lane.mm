// Lanes: several tokens in flight, one command buffer each, with no wait between them. The tokens
// are known (teacher-forced), or each is chosen on the device from the logits before it (greedy).
#import "metal/engine_impl.h"

#include <algorithm>

#import "metal/launch/pointwise.h"

namespace muser {

Activations Engine::Impl::activations_for(uint32_t slot) {
    Activations set = act;
    if (slot == 0) return set;
    const uint64_t flag_bytes = launch::head_groups(act.logits.n) * uint64_t{4};
    if (lane_logits == nullptr) {
        lane_logits =
            make("lane.logits", act.logits.bytes() * (kLaneMax - 1), Placement::host_visible);
    }
    if (lane_flags == nullptr) {
        lane_flags = make("lane.flags", flag_bytes * (kLaneMax - 1), Placement::host_visible);
    }
    set.logits.values = lane_logits;
    set.logits.row = slot - 1;
    set.flags = lane_flags;
    set.flags_offset = flag_bytes * (slot - 1);
    return set;
}

// What neither kind of lane can do, found before anything has changed.
void Engine::Impl::check_lane(size_t count) const {
    if (config.untracked) {
        // A plan orders what is within one command buffer; between two in flight only tracking
        // does. A single step is waited for before the next is committed.
        throw ConfigError("untracked buffers are not ordered between command buffers in flight; a "
                          "lane needs tracked ones",
                          {{"untracked", "1"}});
    }
    if (count > config.context - kv.position()) {
        throw ContextFullError("the lane does not fit: " + std::to_string(count) +
                                   " tokens at position " + std::to_string(kv.position()) + " of " +
                                   std::to_string(config.context),
                               {{"position", std::to_string(kv.position())},
                                {"tokens", std::to_string(count)},
                                {"context", std::to_string(config.context)}});
    }
}

std::vector<StepValues> Engine::Impl::lane_values(const uint32_t* tokens, uint32_t count,
                                                  bool greedy) const {
    std::vector<StepValues> values;
    model::KvPlanes planes = kv;
    for (uint32_t i = 0; i < count; ++i) {
        const bool chained = greedy && i > 0;
        values.push_back(step_values(chained ? 0 : tokens[i], planes));
        values.back().chained = chained ? 1 : 0;
        planes.append();
    }
    if (greedy) values.emplace_back();
    return values;
}

Phase Engine::Impl::lane_phase(const StepValues& values, bool greedy) const {
    Phase phase = phase_at(values.position);
    phase.chooses = greedy;
    return phase;
}

// To the end of the last step. The bookkeeping is the caller's: until then it stays as it was.
void Engine::Impl::run_lane(const std::vector<StepValues>& values, uint32_t count, bool greedy,
                            const Interrupted& interrupted) {
    activations_for(count - 1);  // makes their buffers: one refused is met before anything runs
    // All slots at once: a write among the command buffers would hold the device up, and could
    // come after the choice that a slot is to keep.
    context.write(*steps, 0, values.data(), values.size() * sizeof(StepValues));
    std::vector<ObjcPtr<CommandBufferId>> lane;
    lane.reserve(count);
    try {
        guarded([&] {
            for (uint32_t i = 0; i < count; ++i) {
                lane.push_back(encode_step(lane_phase(values[i], greedy), i));
                [lane.back().get() commit];
            }
            // Each buffer's own status is read; nothing is inferred from a later one.
            for (const auto& commands : lane) {
                waiter.wait(commands.get(), config.wait_seconds, interrupted);
            }
        });
    } catch (const std::exception& error) {
        // Once a buffer is committed, any failure leaves the lane half run: a dead engine, while
        // the device may still be at the buffers behind.
        if (lane.empty()) throw;
        waiter.abandon(lane);
        if (dead.empty()) dead = error.what();
        throw;
    }
}

// The rows of the first `kept` steps of a finished lane of `count`, unless one of them is not
// finite; without `logits` their flags alone.
void Engine::Impl::read_lane(uint32_t count, uint32_t kept, float* logits) {
    const uint32_t groups = launch::head_groups(act.logits.n);
    const uint64_t flag_bytes = groups * uint64_t{4};
    std::vector<uint32_t> flags(size_t{kept} * groups);
    context.read(*act.flags, 0, flags.data(), flag_bytes);
    if (kept > 1) context.read(*lane_flags, 0, flags.data() + groups, flag_bytes * (kept - 1));
    const uint64_t start = kv.position() - count;
    try {
        for (uint32_t i = 0; i < kept; ++i) {
            check_finite(std::span(flags).subspan(size_t{i} * groups, groups), start + i + 1);
        }
    } catch (const NonFiniteError&) {
        // The row is an error, not a state: take the lane back, ring rows included.
        if (config.rollback_max >= count) bring_back(count);
        throw;
    }
    if (logits == nullptr) return;
    const uint64_t row = act.logits.bytes();
    context.read(*act.logits.values, 0, logits, row);
    if (kept > 1) context.read(*lane_logits, 0, logits + act.logits.n, row * (kept - 1));
}

// The ids that a greedy lane chose, from the slots behind each step's own.
void Engine::Impl::read_choices(uint32_t count, uint32_t* ids) const {
    std::vector<StepValues> slots(count);
    context.read(*steps, MUSER_STEP_BYTES, slots.data(), slots.size() * sizeof(StepValues));
    for (uint32_t i = 0; i < count; ++i) ids[i] = slots[i].device_token;
}

void Engine::teacher_forced(const uint32_t* tokens, size_t count, float* logits,
                            const Interrupted& interrupted) {
    Impl& self = *impl_;
    AutoreleaseScope scope;
    self.check_alive();
    if (count > kLaneMax) {
        throw ConfigError(
            "a lane takes at most " + std::to_string(kLaneMax) + " tokens",
            {{"found", std::to_string(count)}, {"expected", "1 ... " + std::to_string(kLaneMax)}});
    }
    for (size_t i = 0; i < count; ++i) self.check_token(tokens[i]);
    self.check_lane(count);
    if (count == 0) return;
    const auto steps = static_cast<uint32_t>(count);
    self.run_lane(self.lane_values(tokens, steps, false), steps, false, interrupted);
    for (uint32_t i = 0; i < steps; ++i) self.kv.append();
    self.read_lane(steps, steps, logits);
}

size_t Engine::greedy(uint32_t token, size_t count, std::span<const uint32_t> stop, uint32_t* ids,
                      float* logits, const Interrupted& interrupted) {
    Impl& self = *impl_;
    self.check_alive();
    self.check_token(token);
    self.check_lane(count);
    const uint64_t vocab = self.on_device.geometry.vocab;
    // What a stop leaves behind must fit the journal.
    const size_t most =
        stop.empty() ? kLaneMax : std::clamp<size_t>(self.config.rollback_max, 1, kLaneMax);
    for (size_t done = 0; done < count;) {
        AutoreleaseScope scope;
        const auto steps = static_cast<uint32_t>(std::min(most, count - done));
        self.run_lane(self.lane_values(&token, steps, true), steps, true, interrupted);
        for (uint32_t i = 0; i < steps; ++i) self.kv.append();
        const uint32_t* const chosen = ids + done;
        self.read_choices(steps, ids + done);
        const uint32_t* const end = chosen + steps;
        const uint32_t* const hit = std::find_first_of(chosen, end, stop.begin(), stop.end());
        const auto kept = static_cast<uint32_t>(hit == end ? steps : hit - chosen + 1);
        self.read_lane(steps, kept, logits == nullptr ? nullptr : logits + done * vocab);
        done += kept;
        if (kept < steps) self.bring_back(steps - kept);
        if (hit != end || (interrupted && interrupted())) return done;
        token = chosen[steps - 1];
    }
    return count;
}

}  // namespace muser
