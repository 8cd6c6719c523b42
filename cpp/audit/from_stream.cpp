#include "audit/from_stream.h"

#include <algorithm>

#include "errors.h"

namespace muser::audit {

uint32_t StreamTrace::object(const stream::BufferRef& buffer) {
    const auto [at, fresh] =
        objects_.try_emplace(buffer->id, static_cast<uint32_t>(trace_.objects.size()));
    if (fresh) {
        std::string label = buffer->label;
        if (label.empty()) label = "buffer " + std::to_string(buffer->id);
        trace_.objects.push_back({std::move(label), buffer->allocation, buffer->allocation_offset,
                                  buffer->length, buffer->tracked});
    }
    return at->second;
}

void StreamTrace::contents(const stream::BufferRef& buffer, uint64_t offset, uint64_t length) {
    if (length > 0) trace_.contents.push_back({object(buffer), Access::read, offset, length, {}});
}

Dispatch StreamTrace::convert(const stream::CommandBuffer& recording,
                              const stream::Dispatch& dispatch, const StepWord& step) {
    Dispatch out;
    out.label = recording.labels.at(dispatch.label);
    if (naming_.layer) out.layer = naming_.layer(out.label);
    out.kernel = dispatch.kernel->name;
    const auto binding = [&](uint32_t argument) -> const stream::Binding& {
        for (uint32_t b = 0; b < dispatch.binding_count; ++b) {
            const stream::Binding& bound = recording.bindings[dispatch.first_binding + b];
            if (bound.argument == argument) return bound;
        }
        throw DeviceError("closure " + out.label + ", kernel " + out.kernel + ": argument " +
                              std::to_string(argument) + " is declared and not bound",
                          {{"closure", out.label},
                           {"kernel", out.kernel},
                           {"argument", std::to_string(argument)}});
    };
    for (uint32_t a = 0; a < dispatch.access_count; ++a) {
        const stream::DeclaredAccess& declared = recording.accesses[dispatch.first_access + a];
        const stream::Binding& bound = binding(declared.argument);
        const uint64_t base = bound.offset + declared.offset;
        const auto add = [&](uint64_t offset, uint64_t length) {
            if (length == 0) return;
            std::string argument = naming_.argument
                                       ? naming_.argument(out.kernel, declared.argument)
                                       : std::to_string(declared.argument);
            out.uses.push_back({object(bound.buffer),
                                static_cast<Access>(static_cast<uint8_t>(declared.access)),
                                base + offset, length, std::move(argument)});
        };
        const stream::RowRule& rows = declared.rows;
        if (!rows.active) {
            add(0, declared.length);
            continue;
        }
        const auto word = [&](uint32_t at, uint32_t otherwise) {
            if (at == stream::RowRule::kConstant) return otherwise;
            return step(binding(rows.step_argument), at);
        };
        const uint64_t first = word(rows.first_word, 0);
        const uint64_t count = word(rows.count_word, 1);
        const uint64_t last = first + count;  // exclusive
        const uint64_t held = rows.capacity == 0 ? last : rows.capacity;
        if (first > held || count > held || held * rows.stride > declared.length) {
            if (count == 0) continue;
            throw DeviceError("closure " + out.label + ", kernel " + out.kernel + ": rows " +
                                  std::to_string(first) + " ... " + std::to_string(last) +
                                  " of argument " + std::to_string(declared.argument) +
                                  " leave their bound",
                              {{"closure", out.label},
                               {"first", std::to_string(first)},
                               {"count", std::to_string(count)},
                               {"capacity", std::to_string(held)}});
        }
        // A ring that wraps is touched in two runs.
        const uint64_t straight = std::min(last, held) - first;
        add(first * rows.stride, straight * rows.stride);
        add(0, (count - straight) * rows.stride);
    }
    return out;
}

uint32_t StreamTrace::commit(const stream::CommandBuffer& recording, const StepWord& step) {
    const auto id = static_cast<uint32_t>(trace_.command_buffers.size());
    CommandBuffer commands;
    for (const stream::Encoder& encoder : recording.encoders) {
        Encoder out{encoder.concurrent, {}};
        for (uint32_t i = 0; i < encoder.command_count; ++i) {
            const stream::Command& command = recording.commands[encoder.first_command + i];
            if (command.kind == stream::Command::Kind::dispatch) {
                out.commands.push_back(
                    {Command::Kind::dispatch, static_cast<uint32_t>(trace_.dispatches.size())});
                trace_.dispatches.push_back(
                    convert(recording, recording.dispatches[command.index], step));
                continue;
            }
            const stream::Barrier& barrier = recording.barriers[command.index];
            Barrier kept{barrier.all_buffers, {}, {}};
            for (uint32_t r = 0; r < barrier.resource_count; ++r) {
                kept.objects.push_back(object(recording.resources[barrier.first_resource + r]));
            }
            out.commands.push_back(
                {Command::Kind::barrier, static_cast<uint32_t>(trace_.barriers.size())});
            trace_.barriers.push_back(std::move(kept));
        }
        commands.encoders.push_back(std::move(out));
    }
    trace_.command_buffers.push_back(std::move(commands));
    trace_.host.push_back({HostEvent::Kind::begin, id, true, {}, {}});
    trace_.host.push_back({HostEvent::Kind::commit, id, true, {}, {}});
    return id;
}

void StreamTrace::wait(uint32_t commands, bool completed) {
    trace_.host.push_back({HostEvent::Kind::wait, commands, completed, {}, {}});
}

void StreamTrace::host(Access access, const stream::BufferRef& buffer, uint64_t offset,
                       uint64_t length, std::string label) {
    trace_.host.push_back({HostEvent::Kind::access,
                           kNone,
                           true,
                           {object(buffer), access, offset, length, {}},
                           std::move(label)});
}

}  // namespace muser::audit
