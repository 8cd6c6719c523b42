// Recording a step, a lane or a prompt chunk for the auditor: encoded as decode, teacher_forced,
// greedy and prefill encode it, with the host's writes, waits and reads, at any position, and not
// run.
#import "metal/engine_impl.h"

#include <algorithm>
#include <cstring>

#include "audit/trace.h"
#import "metal/launch/pointwise.h"
#include "metal/recording.h"
#if !defined(__APPLE__)
#include "audit/from_stream.h"
#import "metal/portable/portable.h"
#endif

namespace muser {

#if defined(__APPLE__)

audit::Trace Engine::record(uint64_t, uint32_t, Recorded) const {
    throw ConfigError("recordings are made by portable Metal; use device 'cpu' on another machine",
                      {{"device", "metal"}});
}

#else

namespace {

// The bookkeeping of a sequence of that length, for as long as this lives.
class AtPosition {
  public:
    AtPosition(model::KvPlanes& kv, model::KvPlanes other) : kv_(kv), saved_(std::move(other)) {
        std::swap(kv_, saved_);
    }
    ~AtPosition() { std::swap(kv_, saved_); }
    AtPosition(const AtPosition&) = delete;
    AtPosition& operator=(const AtPosition&) = delete;

  private:
    model::KvPlanes& kv_;
    model::KvPlanes saved_;
};

std::string argument_name(const std::string& kernel, uint32_t argument) {
    const std::vector<std::string_view> names = argument_names(kernel);
    if (argument == 0 || argument > names.size()) return std::to_string(argument);
    return std::string(names[argument - 1]);
}

const stream::BufferRef& memory(const Buffer& buffer) {
    return portable::buffer_of(buffer.object.get());
}

// What a sequence holds before the step: weights, and the rows of the KV planes.
void add_contents(audit::StreamTrace& trace, const ModelOnDevice& model,
                  const model::KvPlanes& kv) {
    const auto weight = [&](const DeviceWeight& w) {
        if (w.buffer) trace.contents(memory(w.buffer), w.offset, w.bytes);
    };
    weight(model.token_embd);
    weight(model.output_norm);
    weight(model.output);
    for (size_t i = 0; i < model.layers.size(); ++i) {
        const LayerOnDevice& layer = model.layers[i];
        for (const DeviceWeight* w :
             {&layer.attn_norm, &layer.attn_q, &layer.attn_k, &layer.attn_v, &layer.attn_gate,
              &layer.attn_q_norm, &layer.attn_k_norm, &layer.attn_output,
              &layer.post_attention_norm, &layer.ffn_norm, &layer.ffn_gate, &layer.ffn_up,
              &layer.ffn_down, &layer.post_ffw_norm}) {
            weight(*w);
        }
        // Rows held lie in one run, or in two where the ring's end lies between.
        const model::KvPlane& plane = kv.plane(i);
        const uint64_t row = kv.row_bytes();
        for (const Buffer* rows : {layer.planes.k, layer.planes.v}) {
            const uint64_t first = plane.origin_physical();
            const uint64_t straight = std::min(plane.length(), plane.capacity() - first);
            trace.contents(memory(*rows), first * row, straight * row);
            trace.contents(memory(*rows), 0, (plane.length() - straight) * row);
        }
    }
}

}  // namespace

audit::Trace Engine::record(uint64_t position, uint32_t tokens, Recorded kind) const {
    Impl& self = *impl_;
    AutoreleaseScope scope;
    self.check_alive();
    const bool chunk = kind == Recorded::chunk, greedy = kind == Recorded::greedy;
    const uint32_t most = chunk ? self.chunk_rows() : kLaneMax;
    if (tokens == 0 || tokens > most) {
        throw ConfigError("a recording has 1 ... " + std::to_string(most) + " tokens",
                          {{"found", std::to_string(tokens)}});
    }
    if (chunk && self.config.barriers == "planned") {
        throw ConfigError("under planned barriers a prompt goes token by token; record a step",
                          {{"barriers", "planned"}});
    }
    if (position + tokens > self.config.context || position + tokens < position) {
        throw ContextFullError(std::to_string(tokens) + " tokens at position " +
                                   std::to_string(position) + " do not fit the context of " +
                                   std::to_string(self.config.context),
                               {{"position", std::to_string(position)},
                                {"context", std::to_string(self.config.context)}});
    }
    model::KvPlanes kv(self.on_device.geometry, self.config.context, self.kv.type(),
                       self.config.rollback_max);
    kv.restore(position, self.config.rollback_max);
    const AtPosition at(self.kv, std::move(kv));

    audit::StreamTrace trace(
        {argument_name, [](const std::string& label) { return layer_of(label); }});
    add_contents(trace, self.on_device, self.kv);
    std::vector<std::string> sites;  // of each barrier, in order
    std::vector<StepValues> slots;
    const audit::StreamTrace::StepWord step = [&](const stream::Binding& slot, uint32_t word) {
        uint32_t value;
        std::memcpy(&value,
                    reinterpret_cast<const std::byte*>(&slots.at(slot.offset / MUSER_STEP_BYTES)) +
                        size_t{word} * 4,
                    sizeof value);
        return value;
    };
    const auto commit = [&](const ObjcPtr<CommandBufferId>& commands, const EncodeLog& log) {
        trace.commit(*portable::recording_of(commands.get()), step);
        for (const EncodeLog::Barrier& barrier : log.barriers) {
            sites.push_back(barrier.site + ": " + barrier.hazard);
        }
    };
    const auto read_row = [&](const Activations& set, uint32_t row) {
        const uint64_t flag_bytes = launch::head_groups(set.logits.n) * uint64_t{4};
        const launch::Vector logits = set.logits.at(row);
        trace.host(audit::Access::read, memory(*set.flags), set.flags_offset + row * flag_bytes,
                   flag_bytes, "flags");
        trace.host(audit::Access::read, memory(*logits.values), logits.offset(), logits.bytes(),
                   "logits");
    };
    std::vector<uint32_t> ids(tokens);
    for (uint32_t i = 0; i < tokens; ++i) ids[i] = i % self.on_device.geometry.vocab;
    slots = chunk ? self.chunk_values(ids.data(), tokens)
                  : self.lane_values(ids.data(), tokens, greedy);
    const auto write_slots = [&](const Buffer& steps) {
        trace.host(audit::Access::write, memory(steps), 0, slots.size() * sizeof(StepValues),
                   "step values");
    };
    if (chunk) {
        EncodeLog log;
        const ObjcPtr<CommandBufferId> commands = self.encode_rows(slots, tokens, &log);
        write_slots(self.chunk_steps());
        commit(commands, log);
        trace.wait(0);
        for (uint32_t i = 0; i < tokens; ++i) read_row(self.chunk_activations(), i);
    } else {
        write_slots(*self.steps);
        for (uint32_t i = 0; i < tokens; ++i) {
            EncodeLog log;
            const Phase phase = self.lane_phase(slots[i], greedy);
            const ObjcPtr<CommandBufferId> commands = self.encode_step(phase, i, &log);
            commit(commands, log);
        }
        for (uint32_t i = 0; i < tokens; ++i) trace.wait(i);
        if (greedy) {
            trace.host(audit::Access::read, memory(*self.steps), MUSER_STEP_BYTES,
                       uint64_t{tokens} * MUSER_STEP_BYTES, "choices");
        }
        for (uint32_t i = 0; i < tokens; ++i) read_row(self.activations_for(i), 0);
    }
    audit::Trace made = trace.take();
    for (size_t b = 0; b < made.barriers.size() && b < sites.size(); ++b) {
        made.barriers[b].site = sites[b];
    }
    return made;
}

#endif

}  // namespace muser
