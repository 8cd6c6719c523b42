// Running one step, and plans of what would run.
#import "metal/engine_impl.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "contract/rope.h"
#import "metal/launch/pointwise.h"
#if !defined(__APPLE__)
#import "metal/portable/portable.h"
#endif

namespace muser {
namespace {

KvView view_of(const model::KvView& view, uint64_t first_row, uint64_t write_row) {
    const auto word = [](uint64_t value) { return static_cast<uint32_t>(value); };
    const uint64_t last = view.first_position + view.count - 1;
    return {word(view.first_position),
            word(first_row),
            word(view.count),
            word(view.count - 1),
            word(write_row),
            word(last / MUSER_CHUNK - view.first_position / MUSER_CHUNK + 1)};
}

// The name under which a stage's output is captured: "blk.3.attention", "blk.3.qkvg.q".
std::string capture_name(Label label, std::string_view output) {
    std::string name = label_text(label);
    if (!output.empty()) name += "." + std::string(output);
    return name;
}

// Whether a closure, or one of its outputs, is asked for.
bool captures(const std::vector<std::string>& wanted, const std::string& closure) {
    return std::any_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
        return name == closure || name.starts_with(closure + ".");
    });
}

// "blk.3." of "blk.3.attention"; nothing of "lm_head".
std::string_view layer_prefix(std::string_view name) {
    if (!name.starts_with("blk.")) return {};
    return name.substr(0, name.find('.', 4) + 1);
}

}  // namespace

// ConfigError for a name that no closure of this step will leave behind, before anything runs.
void Engine::Impl::check_captures(const std::vector<std::string>& capture) {
    if (capture.empty()) return;
    check_alive();
    EncodeLog log;
    encode_only(kv.position(), log);
    for (const std::string& name : capture) {
        // What the name could have been: everything its layer, or the rest of the graph, leaves.
        const std::string_view layer = layer_prefix(name);
        std::string allowed;
        bool found = false;
        for (const Label& label : log.closures) {
            for (const StageOutput& output : stage_outputs(label.stage, act, schedule)) {
                const std::string known = capture_name(label, output.name);
                found = found || name == label_text(label) || name == known;
                if (layer_prefix(known) != layer) continue;
                allowed += (allowed.empty() ? "" : ", ") + known;
            }
        }
        if (!found) {
            throw ConfigError("schedule " + std::string(schedule.name) + " has no stage output '" +
                                  name + "' at this position; there are " + allowed +
                                  " (schedule 'production' keeps the stages apart)",
                              {{"capture", name},
                               {"schedule", std::string(schedule.name)},
                               {"allowed", allowed}});
        }
    }
}

// Encodes a step at a position and drops it: what plans and checks look at.
void Engine::Impl::encode_only(uint64_t position, EncodeLog& log) {
    const Phase phase = phase_at(position);
    GraphEncoder g(context, encoder_options(&log, phase));
    const ObjcPtr<CommandBufferId> commands = next_commands();
    g.begin(commands.get());
    encode_token(g, on_device, act, schedule, step_slot(0), phase);
    g.end();
}

// Records the phase once without barriers and plans from that. Slots of a lane differ in the
// offsets of rows that no dispatch of theirs shares with another, so one plan serves them all.
const BarrierPlan& Engine::Impl::plan_for(const Phase& phase) {
    for (const auto& [known, plan] : plans) {
        if (known == phase) return plan;
    }
    EncodeLog log;
    GraphEncoder::Options options;
    options.mode = BarrierMode::none;
    options.untracked = config.untracked;
    options.log = &log;
    GraphEncoder g(context, options);
    const ObjcPtr<CommandBufferId> commands = next_commands();
    g.begin(commands.get());
    encode_token(g, on_device, act, schedule, step_slot(0), phase);
    g.end();
    plans.emplace_back(phase, plan_barriers(log));
    return plans.back().second;
}

void Engine::Impl::check_alive() const {
    if (dead.empty()) return;
    throw EngineClosed("the engine is closed after a failure: " + dead + "; load it again",
                       {{"reason", dead}});
}

void Engine::Impl::check_token(uint32_t token) const {
    const uint32_t vocab = on_device.geometry.vocab;
    if (token < vocab) return;
    throw TokenRangeError(
        "token " + std::to_string(token) + " is outside the vocabulary of " + std::to_string(vocab),
        {{"token", std::to_string(token)}, {"vocab", std::to_string(vocab)}});
}

Phase Engine::Impl::phase_at(uint64_t position) const {
    const model::Geometry& geometry = on_device.geometry;
    Phase phase;
    phase.wrapped = position >= geometry.window;
    const uint64_t seen = std::min<uint64_t>(position + 1, geometry.window);
    // A full window may start anywhere within a chunk, so it touches one chunk more.
    phase.ring_chunks = phase.wrapped ? (geometry.window + MUSER_CHUNK - 1) / MUSER_CHUNK + 1
                                      : chunk_bucket(seen, geometry.window);
    phase.plane_chunks = chunk_bucket(position + 1, config.context);
    return phase;
}

launch::Step Engine::Impl::step_slot(uint32_t slot) const {
    return {steps, uint64_t{slot} * MUSER_STEP_BYTES};
}

StepValues Engine::Impl::step_values(uint32_t token, const model::KvPlanes& planes) const {
    StepValues values{};
    const uint64_t position = planes.position();
    values.token = token;
    values.position = static_cast<uint32_t>(position);
    if (first_local) {
        const model::KvPlane& plane = planes.plane(*first_local);
        const model::KvView view = plane.view(position);
        const model::KvAppend append = plane.plan_append();
        values.ring = view_of(view, view.first_row, view.write_row);
        values.shadow = view_of(view, 0, view.count - 1);
        values.overwrite = append.overwrites && append.journaled ? 1 : 0;
        values.journal_row = static_cast<uint32_t>(append.journal_row);
    }
    if (first_global) {
        const model::KvView view = planes.plane(*first_global).view(position);
        values.plane = view_of(view, view.first_row, view.write_row);
    }
    contract::rope_table(static_cast<int64_t>(position), config.rope_inverse.data(),
                         config.rope_inverse.size(), values.rope_cos, values.rope_sin);
    return values;
}

GraphEncoder::Options Engine::Impl::encoder_options(EncodeLog* log, const Phase& phase) {
    GraphEncoder::Options options;
    options.serial = config.serial_dispatch;
    options.untracked = config.untracked;
    options.log = log;
    if (config.barriers == "all") options.mode = BarrierMode::all;
    if (config.barriers == "planned") {
        options.mode = BarrierMode::planned;
        options.plan = &plan_for(phase);
    }
    constexpr std::string_view kOmit = "omit_barrier_";
    for (const auto& [fault, value] : config.faults) {
        if (value == 0 || !fault.starts_with(kOmit)) continue;
        options.omit.push_back(static_cast<uint32_t>(std::stoul(fault.substr(kOmit.size()))));
    }
    return options;
}

ObjcPtr<CommandBufferId> Engine::Impl::next_commands() {
    auto commands = ObjcPtr<CommandBufferId>::retain([context.queue() commandBuffer]);
    if (!commands) throw DeviceError("the queue has no room for another command buffer", {});
    return commands;
}

void Engine::Impl::check_finite(std::span<const uint32_t> flags, uint64_t position) {
    const auto bad = std::find_if(flags.begin(), flags.end(), [](uint32_t f) { return f != 0; });
    if (bad == flags.end()) return;
    const auto first = (bad - flags.begin()) * MUSER_HEAD_GROUP;
    throw NonFiniteError(
        "a logit among " + std::to_string(first) + " ... " +
            std::to_string(first + MUSER_HEAD_GROUP - 1) + " is not finite before position " +
            std::to_string(position),
        {{"position", std::to_string(position)}, {"first_id", std::to_string(first)}});
}

// Copies a finished row out, unless a bare dot of it was not finite.
void Engine::Impl::read_row(const Activations& set, uint32_t row, float* logits) {
    std::vector<uint32_t> flags(launch::head_groups(set.logits.n));
    context.read(*set.flags, set.flags_offset + row * flags.size() * 4, flags.data(),
                 flags.size() * 4);
    check_finite(flags, kv.position());
    context.read(*set.logits.values, set.logits.at(row).offset(), logits, set.logits.bytes());
}

// One step of a phase, encoded and not committed: the single one, or a lane's.
ObjcPtr<CommandBufferId> Engine::Impl::encode_step(const Phase& phase, uint32_t slot,
                                                   EncodeLog* log) {
    ObjcPtr<CommandBufferId> commands = next_commands();
    GraphEncoder g(context, encoder_options(log, phase));
    g.begin(commands.get());
    launch::Step step = step_slot(slot);
    step.chained = phase.chooses && slot > 0;
    encode_token(g, on_device, activations_for(slot), schedule, step, phase);
    g.end();
    return commands;
}

void Engine::Impl::run_step(StepRun& run) {
    using Clock = std::chrono::steady_clock;
    const auto since = [](Clock::time_point start) {
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    check_alive();
    check_token(run.token);
    kv.plan_append();  // ContextFullError before anything has changed
    const auto start = Clock::now();
    const StepValues values = step_values(run.token, kv);
    context.write(*steps, 0, &values, sizeof values);

    ObjcPtr<CommandBufferId> commands;
    // A recording knows nothing of the token and the position but their phase, so the next step's
    // is made while the device works on this one.
    const bool plain = run.log == nullptr && run.repeat.empty() && !run.stops_after &&
                       !run.time_labels && !split_closures;
    const auto finish = [&] {
        const auto committed = Clock::now();
#if !defined(__APPLE__)
        portable::recording_of(commands.get())->time_labels = run.time_labels;
#endif
        [commands.get() commit];
        run.submit_seconds += since(committed);
        const auto waiting = Clock::now();
        if (plain && values.position + uint64_t{1} < config.context) {
            const Phase next = phase_at(values.position + uint64_t{1});
            try {
                if (!ahead || ahead->phase != next) ahead = Ahead{next, encode_step(next)};
            } catch (const Error&) {
                ahead.reset();  // the next step meets it itself; this one is running
            }
        }
        guarded([&] { waiter.wait(commands.get(), config.wait_seconds, run.interrupted); });
        run.wait_seconds += since(waiting);
        if (run.completed) run.completed(commands.get());
    };
    const Phase phase = phase_at(values.position);
    std::vector<ObjcPtr<CommandBufferId>> in_flight;  // of split_closures
    if (plain) {
        if (ahead && ahead->phase == phase) {
            commands = std::move(ahead->commands);
        } else {
            commands = encode_step(phase);
        }
        ahead.reset();
    } else {
        commands = next_commands();
        GraphEncoder::Options options = encoder_options(run.log, phase);
        options.repeat = run.repeat;
        options.spares = &spares;
        spares.rewind();
        GraphEncoder g(context, options);
        g.stops_after = run.stops_after;
        g.after_closure = [&](Label label) {
            if (split_closures) {
                [commands.get() commit];
                in_flight.push_back(commands);
                return;
            }
            finish();
            if (run.after_closure) run.after_closure(label);
        };
        if (split_closures) g.stops_after = [](Label) { return true; };
        g.next_commands = [&] {
            commands = next_commands();
            return commands.get();
        };
        g.begin(commands.get());
        encode_token(g, on_device, act, schedule, step_slot(0), phase);
        g.end();
    }
    try {
        for (const auto& earlier : in_flight) {
            guarded([&] { waiter.wait(earlier.get(), config.wait_seconds, run.interrupted); });
        }
    } catch (...) {
        waiter.abandon(in_flight);
        throw;
    }
    // Cuts wait inside the encoding; what is left is encoding.
    run.encode_seconds = since(start) - run.submit_seconds - run.wait_seconds;
    finish();

    kv.append();
    const auto reading = Clock::now();
    try {
        read_row(act, 0, run.logits);
    } catch (const NonFiniteError&) {
        // The row is an error, not a state: take it back, ring rows included.
        if (config.rollback_max > 0) bring_back(1);
        throw;
    }
    run.readback_seconds = since(reading);
}

void Engine::decode(uint32_t token, float* logits, const std::vector<std::string>& capture,
                    std::vector<Capture>& captured, const Interrupted& interrupted) {
    Impl& self = *impl_;
    AutoreleaseScope scope;
    self.check_captures(capture);
    Impl::StepRun run;
    run.token = token;
    run.logits = logits;
    run.interrupted = interrupted;
    if (!capture.empty()) {
        // A capture cuts the command buffer after the closure: the same kernels, the same order.
        run.stops_after = [&](Label label) { return captures(capture, label_text(label)); };
        run.after_closure = [&](Label label) {
            for (const StageOutput& output : stage_outputs(label.stage, self.act, self.schedule)) {
                const std::string name = capture_name(label, output.name);
                if (!captures(capture, name) && !captures(capture, label_text(label))) continue;
                Capture taken{name, std::vector<float>(output.vector.n)};
                self.context.read(*output.vector.values, output.vector.offset(),
                                  taken.values.data(), output.vector.bytes());
                captured.push_back(std::move(taken));
            }
        };
    }
    self.run_step(run);
}

Plan Engine::plan(uint64_t position) const {
    Impl& self = *impl_;
    AutoreleaseScope scope;
    self.check_alive();
    if (position >= self.config.context) {
        throw ContextFullError("position " + std::to_string(position) + " is beyond the context",
                               {{"position", std::to_string(position)},
                                {"context", std::to_string(self.config.context)}});
    }
    EncodeLog log;
    self.encode_only(position, log);

    Plan plan;
    plan.schedule = self.schedule.name;
    plan.position = position;
    plan.broad = log.broad;
    plan.targeted = log.targeted;
    std::string& text = plan.canonical;
    text = "schedule " + plan.schedule + "\ndevice " + self.context.description().name + "\n";
    for (const Label label : log.closures) plan.closures.push_back(label_text(label));
    size_t barrier = 0;
    for (size_t i = 0; i < log.dispatches.size(); ++i) {
        for (; barrier < log.barriers.size() && log.barriers[barrier].before_dispatch == i;
             ++barrier) {
            const EncodeLog::Barrier& entry = log.barriers[barrier];
            plan.barriers.push_back(
                {entry.before_dispatch, entry.site, entry.hazard, entry.resources});
            text += entry.resources.empty() ? "barrier" : "barrier on";
            for (const std::string& resource : entry.resources) text += " " + resource;
            text += "\n";
        }
        const EncodedDispatch& dispatch = log.dispatches[i];
        const stream::Size3 groups = dispatch.groups;
        plan.dispatches.push_back({plan.closures[dispatch.closure],
                                   dispatch.kernel,
                                   {groups.x, groups.y, groups.z},
                                   dispatch.threads});
        text += plan.closures[dispatch.closure] + " " + dispatch.kernel + " " +
                std::to_string(groups.x) + "x" + std::to_string(groups.y) + "x" +
                std::to_string(groups.z) + " " + std::to_string(dispatch.threads) + "\n";
    }
    return plan;
}

}  // namespace muser
