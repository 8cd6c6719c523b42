#include "audit/trace.h"

#include "audit/checker.h"
#include "errors.h"

namespace muser::audit {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& where, uint64_t found,
                         uint64_t expected) {
    throw ConfigError("the trace is not sound: " + what + " in " + where,
                      {{"where", where},
                       {"found", std::to_string(found)},
                       {"expected", std::to_string(expected)}});
}

void check_index(const char* what, const std::string& where, uint64_t index, size_t count) {
    if (index >= count) refuse(std::string("there is no such ") + what, where, index, count);
}

void check_range(const Trace& trace, const std::string& where, uint32_t object, uint64_t offset,
                 uint64_t length) {
    check_index("buffer", where, object, trace.objects.size());
    const uint64_t held = trace.objects[object].length;
    if (offset > held || length > held - offset) {
        refuse("bytes outside buffer '" + trace.objects[object].label + "'", where, offset + length,
               held);
    }
}

void check_commands(const Trace& trace) {
    std::vector<uint8_t> dispatched(trace.dispatches.size()), placed(trace.barriers.size());
    for (size_t c = 0; c < trace.command_buffers.size(); ++c) {
        const std::string where = "command buffer " + std::to_string(c);
        for (const Encoder& encoder : trace.command_buffers[c].encoders) {
            for (const Command& command : encoder.commands) {
                const bool dispatch = command.kind == Command::Kind::dispatch;
                std::vector<uint8_t>& seen = dispatch ? dispatched : placed;
                check_index(dispatch ? "dispatch" : "barrier", where, command.index, seen.size());
                if (seen[command.index]++ != 0) {
                    refuse("a command is there twice", where, command.index, 1);
                }
            }
        }
    }
}

void check_host(const Trace& trace) {
    enum : uint8_t { unknown, begun, committed };
    std::vector<uint8_t> state(trace.command_buffers.size(), unknown);
    for (size_t h = 0; h < trace.host.size(); ++h) {
        const HostEvent& event = trace.host[h];
        const std::string where = "host event " + std::to_string(h);
        using Kind = HostEvent::Kind;
        if (event.kind == Kind::access || event.kind == Kind::release ||
            event.kind == Kind::reuse) {
            check_range(trace, where, event.use.object, event.use.offset, event.use.length);
            continue;
        }
        check_index("command buffer", where, event.commands, state.size());
        uint8_t& now = state[event.commands];
        const uint8_t before = event.kind == Kind::begin    ? unknown
                               : event.kind == Kind::commit ? begun
                                                            : committed;
        if (now != before) {
            refuse("begin, commit and waits are not in order", where, now, before);
        }
        now = event.kind == Kind::begin ? begun : committed;
    }
    for (size_t c = 0; c < state.size(); ++c) {
        if (state[c] != committed) {
            refuse("it is never committed", "command buffer " + std::to_string(c), state[c],
                   committed);
        }
    }
}

}  // namespace

void validate(const Trace& trace) {
    for (size_t i = 0; i < trace.objects.size(); ++i) {
        const Object& object = trace.objects[i];
        if (object.offset + object.length < object.offset) {
            refuse("its end is beyond 64 bits", "buffer " + std::to_string(i), object.offset,
                   UINT64_MAX - object.length);
        }
    }
    for (const Use& use : trace.contents) {
        check_range(trace, "the contents", use.object, use.offset, use.length);
    }
    for (size_t d = 0; d < trace.dispatches.size(); ++d) {
        const Dispatch& dispatch = trace.dispatches[d];
        const std::string where = "dispatch " + std::to_string(d) + " ('" + dispatch.label + "')";
        for (const auto* uses : {&dispatch.uses, &dispatch.touched}) {
            for (const Use& use : *uses) {
                check_range(trace, where, use.object, use.offset, use.length);
            }
        }
        for (const Producer& producer : dispatch.producers) {
            check_range(trace, where, producer.object, producer.offset, producer.length);
        }
    }
    for (size_t b = 0; b < trace.barriers.size(); ++b) {
        for (const uint32_t object : trace.barriers[b].objects) {
            check_index("buffer", "barrier " + std::to_string(b), object, trace.objects.size());
        }
    }
    check_commands(trace);
    check_host(trace);
}

void state_producers(Trace& trace) {
    for (Dispatch& dispatch : trace.dispatches) dispatch.producers.clear();
    const Checker checker(trace);
    const Analysis& found = checker.analysis();
    const auto state = [&](uint32_t reader, uint64_t begin, uint64_t end, std::string label,
                           uint32_t writer) {
        const AccessRef& access = found.accesses[reader];
        const Node& node = found.nodes[access.node];
        if (node.dispatch == kNone) return;
        const uint64_t base = trace.objects[access.object].offset;
        trace.dispatches[node.dispatch].producers.push_back(
            {access.object, begin - base, end - begin, std::move(label), writer});
    };
    for (const Pair& pair : found.pairs) {
        const AccessRef& from = found.accesses[pair.from];
        if (!from.write || found.accesses[pair.to].write) continue;
        const Node& writer = found.nodes[from.node];
        const bool host = writer.dispatch == kNone;
        state(pair.to, pair.begin, pair.end,
              host ? "host" : trace.dispatches[writer.dispatch].label, writer.dispatch);
    }
    for (const Unwritten& read : found.held) {
        state(read.access, read.begin, read.end, "contents", kNone);
    }
}

}  // namespace muser::audit
