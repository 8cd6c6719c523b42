// Profiling: one step with every closure counted, and timed where the device can tell.
#import "metal/engine_impl.h"

#include <chrono>

#if !defined(__APPLE__)
#import "metal/portable/portable.h"
#endif

namespace muser {
namespace {

// Stages whose kernels may run again without changing anything: they read what they do not write.
constexpr Stage kRepeatable[] = {Stage::qkvg, Stage::output, Stage::ffn_down, Stage::lm_head};

std::vector<std::pair<Stage, int>> repeats(const std::map<std::string, int>& asked) {
    std::vector<std::pair<Stage, int>> found;
    std::string allowed;
    for (const Stage stage : kRepeatable) {
        allowed += (allowed.empty() ? "" : ", ") + std::string(stage_name(stage));
        const auto entry = asked.find(std::string(stage_name(stage)));
        if (entry != asked.end()) found.emplace_back(stage, entry->second);
    }
    for (const auto& [name, count] : asked) {
        if (allowed.find(name) == std::string::npos || count < 1) {
            throw ConfigError(
                "repeat: '" + name + "' " + std::to_string(count) +
                    " times; stages that can be repeated: " + allowed,
                {{"stage", name}, {"count", std::to_string(count)}, {"allowed", allowed}});
        }
    }
    return found;
}

// What a repeatable stage reads in one token.
std::vector<const DeviceWeight*> weights_of(Stage stage, const ModelOnDevice& model) {
    if (stage == Stage::lm_head) return {&model.output};
    std::vector<const DeviceWeight*> found;
    for (const LayerOnDevice& layer : model.layers) {
        if (stage == Stage::output) found.push_back(&layer.attn_output);
        if (stage == Stage::ffn_down) found.push_back(&layer.ffn_down);
        if (stage != Stage::qkvg) continue;
        for (const DeviceWeight* weight :
             {&layer.attn_q, &layer.attn_k, &layer.attn_v, &layer.attn_gate}) {
            found.push_back(weight);
        }
    }
    return found;
}

// The closures that a finished command buffer says it ran, with times where it has them.
void take_samples(id<MTLCommandBuffer> commands, std::vector<ClosureTime>& samples) {
#if defined(__APPLE__)
    // Apple's GPUs tell the time at encoder boundaries only; a closure inside one is unknown.
    (void)commands;
    (void)samples;
#else
    const stream::CommandBufferRef& recording = portable::recording_of(commands);
    std::lock_guard lock(recording->mutex);
    const size_t first = samples.size();
    for (const std::string& label : recording->labels) samples.push_back({label, false, 0, 0});
    for (const stream::LabelTime& time : recording->label_times) {
        ClosureTime& sample = samples[first + time.label];
        sample.known = true;
        sample.start_seconds = time.start_seconds;
        sample.end_seconds = time.end_seconds;
    }
#endif
}

}  // namespace

Profile Engine::profile(uint32_t token, float* logits, bool phase,
                        const std::map<std::string, int>& repeat, const Interrupted& interrupted) {
    Impl& self = *impl_;
    AutoreleaseScope scope;
    Profile profile;
    profile.schedule = self.schedule.name;
    profile.position = self.kv.position();
    EncodeLog log;
    Impl::StepRun run;
    run.token = token;
    run.logits = logits;
    run.interrupted = interrupted;
    run.log = &log;
    run.repeat = repeats(repeat);
    self.check_alive();
    for (const auto& [stage, count] : run.repeat) {
        self.spares.prepare(self.context, weights_of(stage, self.on_device), count - 1);
    }
    profile.spare_bytes = self.spares.bytes();
    run.time_labels = true;
    // softcap is last: cutting after it would leave an empty command buffer behind.
    if (phase) run.stops_after = [](Label label) { return label.stage != Stage::softcap; };
    run.completed = [&](id<MTLCommandBuffer> commands) {
        ++profile.command_buffers;
        profile.device_seconds += [commands GPUEndTime] - [commands GPUStartTime];
        take_samples(commands, profile.samples);
    };
    const auto start = std::chrono::steady_clock::now();
    self.run_step(run);
    profile.wall_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const Label label : log.closures) profile.labels.push_back(label_text(label));
    profile.dispatches = log.dispatches.size();
    profile.broad = log.broad;
    profile.targeted = log.targeted;
    profile.encode_seconds = run.encode_seconds;
    profile.submit_seconds = run.submit_seconds;
    profile.wait_seconds = run.wait_seconds;
    profile.readback_seconds = run.readback_seconds;
    return profile;
}

}  // namespace muser
