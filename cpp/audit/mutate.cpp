#include "audit/mutate.h"

#include <algorithm>

#include "audit/checker.h"
#include "audit/oracle.h"
#include "errors.h"

namespace muser::audit {
namespace {

bool conflicting(const Trace& trace, const Dispatch& a, const Dispatch& b) {
    for (const Use& x : a.uses) {
        for (const Use& y : b.uses) {
            if (!writes(x.access) && !writes(y.access)) continue;
            const Object& ox = trace.objects[x.object];
            const Object& oy = trace.objects[y.object];
            if (ox.allocation != oy.allocation) continue;
            const uint64_t bx = ox.offset + x.offset, by = oy.offset + y.offset;
            if (bx < by + y.length && by < bx + x.length) return true;
        }
    }
    return false;
}

// A closure in an encoder: commands [begin, end), with the barriers between its own dispatches.
struct Closure {
    uint32_t begin = 0, end = 0;
};

std::vector<Closure> closures(const Trace& trace, const Encoder& encoder) {
    std::vector<Closure> out;
    const std::string* label = nullptr;
    for (uint32_t i = 0; i < encoder.commands.size(); ++i) {
        if (encoder.commands[i].kind != Command::Kind::dispatch) continue;
        const std::string& now = trace.dispatches[encoder.commands[i].index].label;
        if (label != nullptr && *label == now) {
            out.back().end = i + 1;
        } else {
            out.push_back({i, i + 1});
        }
        label = &now;
    }
    return out;
}

bool worth_swapping(const Trace& trace, const Encoder& encoder, const Closure& a,
                    const Closure& b) {
    for (uint32_t i = a.begin; i < a.end; ++i) {
        if (encoder.commands[i].kind != Command::Kind::dispatch) continue;
        for (uint32_t j = b.begin; j < b.end; ++j) {
            if (encoder.commands[j].kind == Command::Kind::dispatch &&
                conflicting(trace, trace.dispatches[encoder.commands[i].index],
                            trace.dispatches[encoder.commands[j].index])) {
                return true;
            }
        }
    }
    return false;
}

void add_encoder_mutants(const Trace& trace, Mutant at, const Encoder& encoder,
                         std::vector<Mutant>& out) {
    constexpr uint32_t kNowhere = UINT32_MAX;
    uint32_t last_barrier = kNowhere;
    for (uint32_t i = 0; i < encoder.commands.size(); ++i) {
        const Command& command = encoder.commands[i];
        at.position = i;
        if (command.kind == Command::Kind::barrier) {
            last_barrier = i;
            Mutant made = at;
            made.barrier = command.index;
            made.kind = MutantKind::delete_barrier;
            out.push_back(made);
            for (const uint32_t object : trace.barriers[command.index].objects) {
                made.kind = MutantKind::drop_resource;
                made.object = object;
                out.push_back(made);
            }
            continue;
        }
        Mutant made = at;
        made.dispatch = command.index;
        if (last_barrier != kNowhere) {
            made.kind = MutantKind::move_earlier;
            made.other = last_barrier;
            made.barrier = encoder.commands[last_barrier].index;
            out.push_back(made);
        }
        const auto next =
            std::find_if(encoder.commands.begin() + i, encoder.commands.end(),
                         [](const Command& c) { return c.kind == Command::Kind::barrier; });
        if (next != encoder.commands.end()) {
            made.kind = MutantKind::move_later;
            made.other = static_cast<uint32_t>(next - encoder.commands.begin());
            made.barrier = next->index;
            out.push_back(made);
        }
    }
    const std::vector<Closure> all = closures(trace, encoder);
    for (size_t k = 1; k < all.size(); ++k) {
        if (!worth_swapping(trace, encoder, all[k - 1], all[k])) continue;
        Mutant made = at;
        made.kind = MutantKind::swap_closures;
        made.position = all[k - 1].begin;
        made.other = all[k - 1].end;
        made.begin = all[k].begin;
        made.end = all[k].end;
        made.dispatch = encoder.commands[all[k].begin].index;
        out.push_back(made);
    }
}

// What the base trace's pairs say about a barrier mutant, without checking the mutant anew.
class Judge {
  public:
    explicit Judge(const Trace& trace) : trace_(trace), base_(trace), sole_(trace.barriers.size()) {
        const Analysis& found = base_.analysis();
        for (uint32_t p = 0; p < found.pairs.size(); ++p) {
            const Cover cover = base_.cover(found.pairs[p]);
            if (!cover.edge && cover.barriers.size() == 1) sole_[cover.barriers[0]].push_back(p);
        }
    }
    const Checker& base() const { return base_; }

    // Whether the checker reports the mutant; `trace` is the mutant.
    bool reported(const Trace& trace, const Mutant& mutant) const {
        const Analysis& found = base_.analysis();
        const auto any_of = [&](auto&& body) {
            const std::vector<uint32_t>& pairs = sole_[mutant.barrier];
            return std::any_of(pairs.begin(), pairs.end(), [&](uint32_t p) {
                return body(found.accesses[found.pairs[p].from], found.accesses[found.pairs[p].to]);
            });
        };
        // A barrier only orders: program order, and with it the pairs, stay. A dispatch that
        // leaves its epoch passes only such as it has no conflict with, since the base is sound.
        const auto serial = [&] {
            return !trace_.command_buffers[mutant.commands].encoders[mutant.encoder].concurrent;
        };
        switch (mutant.kind) {
            case MutantKind::delete_barrier:
                return any_of([](const AccessRef&, const AccessRef&) { return true; });
            case MutantKind::drop_resource:
                return any_of([&](const AccessRef& from, const AccessRef& to) {
                    return from.object == mutant.object || to.object == mutant.object;
                });
            case MutantKind::move_later:
                if (serial()) break;
                return any_of([&](const AccessRef& from, const AccessRef&) {
                    return found.nodes[from.node].dispatch == mutant.dispatch;
                });
            case MutantKind::move_earlier:
                if (serial()) break;
                return any_of([&](const AccessRef&, const AccessRef& to) {
                    return found.nodes[to.node].dispatch == mutant.dispatch;
                });
            default:
                break;
        }
        return Checker(trace).any();
    }

  private:
    const Trace& trace_;
    Checker base_;
    std::vector<std::vector<uint32_t>> sole_;  // per barrier: pairs that nothing else covers
};

}  // namespace

const char* name(MutantKind kind) {
    constexpr const char* kNames[] = {"delete_barrier", "drop_resource", "move_later",
                                      "move_earlier",   "swap_closures", "delete_wait",
                                      "late_write",     "untrack"};
    return kNames[static_cast<size_t>(kind)];
}

std::vector<Mutant> mutants(const Trace& trace) {
    std::vector<Mutant> out;
    for (uint32_t c = 0; c < trace.command_buffers.size(); ++c) {
        const auto& encoders = trace.command_buffers[c].encoders;
        for (uint32_t e = 0; e < encoders.size(); ++e) {
            Mutant at;
            at.commands = c;
            at.encoder = e;
            add_encoder_mutants(trace, at, encoders[e], out);
        }
    }
    for (uint32_t h = 0; h < trace.host.size(); ++h) {
        const HostEvent& event = trace.host[h];
        Mutant made;
        made.position = h;
        if (event.kind == HostEvent::Kind::wait) {
            made.kind = MutantKind::delete_wait;
            out.push_back(made);
        }
        if (event.kind != HostEvent::Kind::access || !writes(event.use.access)) continue;
        const auto commit =
            std::find_if(trace.host.begin() + h, trace.host.end(),
                         [](const HostEvent& e) { return e.kind == HostEvent::Kind::commit; });
        if (commit == trace.host.end()) continue;
        made.kind = MutantKind::late_write;
        made.other = static_cast<uint32_t>(commit - trace.host.begin());
        out.push_back(made);
    }
    // Tracking of what nobody writes orders nothing.
    std::vector<bool> written(trace.objects.size(), false);
    for (const Dispatch& dispatch : trace.dispatches) {
        for (const Use& use : dispatch.uses) {
            if (writes(use.access)) written[use.object] = true;
        }
    }
    for (uint32_t o = 0; o < trace.objects.size(); ++o) {
        if (!trace.objects[o].tracked || !written[o]) continue;
        Mutant made;
        made.kind = MutantKind::untrack;
        made.object = o;
        out.push_back(made);
    }
    return out;
}

std::string describe(const Trace& trace, const Mutant& mutant) {
    std::string text = name(mutant.kind);
    if (mutant.barrier != kNone) text += " barrier " + std::to_string(mutant.barrier);
    if (mutant.object != kNone) text += " '" + trace.objects[mutant.object].label + "'";
    if (mutant.dispatch != kNone) {
        text += " dispatch " + std::to_string(mutant.dispatch) + " (" +
                trace.dispatches[mutant.dispatch].label + ")";
    }
    return text + " at " + std::to_string(mutant.position);
}

Mutated::Mutated(Trace& trace, const Mutant& mutant) : trace_(trace), mutant_(mutant) {
    const auto at = [](auto& list, uint32_t i) { return list.begin() + i; };
    switch (mutant.kind) {
        case MutantKind::delete_wait:
            host_ = trace.host;
            trace.host.erase(at(trace.host, mutant.position));
            return;
        case MutantKind::late_write:
            host_ = trace.host;
            std::rotate(at(trace.host, mutant.position), at(trace.host, mutant.position + 1),
                        at(trace.host, mutant.other + 1));
            return;
        case MutantKind::untrack:
            trace.objects[mutant.object].tracked = false;
            return;
        case MutantKind::drop_resource:
            objects_ = trace.barriers[mutant.barrier].objects;
            std::erase(trace.barriers[mutant.barrier].objects, mutant.object);
            return;
        default:
            break;
    }
    std::vector<Command>& commands =
        trace.command_buffers[mutant.commands].encoders[mutant.encoder].commands;
    commands_ = commands;
    switch (mutant.kind) {
        case MutantKind::delete_barrier:
            commands.erase(at(commands, mutant.position));
            break;
        case MutantKind::move_later:
            std::rotate(at(commands, mutant.position), at(commands, mutant.position + 1),
                        at(commands, mutant.other + 1));
            break;
        case MutantKind::move_earlier:
            std::rotate(at(commands, mutant.other), at(commands, mutant.position),
                        at(commands, mutant.position + 1));
            break;
        default: {  // swap_closures: what stands between the two stays there
            std::vector<Command> next;
            const auto copy = [&](uint32_t begin, uint32_t end) {
                next.insert(next.end(), at(commands_, begin), at(commands_, end));
            };
            copy(mutant.begin, mutant.end);
            copy(mutant.other, mutant.begin);
            copy(mutant.position, mutant.other);
            std::copy(next.begin(), next.end(), at(commands, mutant.position));
            break;
        }
    }
}

Mutated::~Mutated() {
    switch (mutant_.kind) {
        case MutantKind::delete_wait:
        case MutantKind::late_write:
            trace_.host = std::move(host_);
            break;
        case MutantKind::untrack:
            trace_.objects[mutant_.object].tracked = true;
            break;
        case MutantKind::drop_resource:
            trace_.barriers[mutant_.barrier].objects = std::move(objects_);
            break;
        default:
            trace_.command_buffers[mutant_.commands].encoders[mutant_.encoder].commands =
                std::move(commands_);
    }
}

MutationReport run_mutants(Trace trace) {
    MutationReport report;
    const Trace original = trace;
    const Judge judge(original);
    if (judge.base().any()) {
        throw ConfigError("mutants are judged on a trace without findings; this one has some", {});
    }
    const Oracle oracle(original);
    std::vector<uint32_t> silent;
    for (const Mutant& mutant : mutants(original)) {
        bool reported = false, unsound = false;
        {
            const Mutated applied(trace, mutant);
            reported = judge.reported(trace, mutant);
            // Hosts' touches are named by event: where events go, the oracle looks anew.
            const bool events =
                mutant.kind == MutantKind::delete_wait || mutant.kind == MutantKind::late_write;
            unsound = events ? Oracle(trace).unsound(trace) : oracle.unsound(trace);
        }
        MutationReport::Count& count = report.kinds[static_cast<size_t>(mutant.kind)];
        ++count.total;
        count.reported += reported;
        count.unsound += unsound;
        ++report.total;
        report.reported += reported;
        report.missed += unsound && !reported;
        report.extra += reported && !unsound;
        if (reported != unsound) {
            report.disagreements.push_back((reported ? "extra: " : "missed: ") +
                                           describe(original, mutant));
        }
        if (mutant.kind == MutantKind::delete_barrier && !reported) {
            silent.push_back(mutant.barrier);
        }
    }
    report.silent_redundant = silent.size();
    std::sort(silent.begin(), silent.end());
    report.silent_is_redundant = silent == judge.base().redundant();

    report.together = judge.base().redundant_together();
    for (CommandBuffer& buffer : trace.command_buffers) {
        for (Encoder& encoder : buffer.encoders) {
            std::erase_if(encoder.commands, [&](const Command& command) {
                return command.kind == Command::Kind::barrier &&
                       std::binary_search(report.together.begin(), report.together.end(),
                                          command.index);
            });
        }
    }
    report.together_sound = !Checker(trace).any() && !oracle.unsound(trace);
    return report;
}

}  // namespace muser::audit
