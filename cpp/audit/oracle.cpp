#include "audit/oracle.h"

#include <algorithm>
#include <set>

namespace muser::audit {

// Where a dispatch or a host access happens.
struct Oracle::Step {
    int64_t rank = -1;  // in program order; -1: not in this trace
    uint32_t commands = 0, encoder = 0, at = 0;
};
struct Oracle::Schedule {
    std::vector<Step> dispatches, host;
    const Step& of(const Touch& touch) const {
        return (touch.host ? host : dispatches)[touch.index];
    }
    explicit Schedule(const Trace& trace)
        : dispatches(trace.dispatches.size()), host(trace.host.size()) {
        int64_t rank = 0;
        for (size_t h = 0; h < trace.host.size(); ++h) {
            const HostEvent& event = trace.host[h];
            if (event.kind == HostEvent::Kind::access) host[h].rank = rank++;
            if (event.kind != HostEvent::Kind::commit) continue;
            const auto& encoders = trace.command_buffers[event.commands].encoders;
            for (uint32_t e = 0; e < encoders.size(); ++e) {
                for (uint32_t c = 0; c < encoders[e].commands.size(); ++c) {
                    const Command& command = encoders[e].commands[c];
                    if (command.kind != Command::Kind::dispatch) continue;
                    dispatches[command.index] = {rank++, event.commands, e, c};
                }
            }
        }
    }
};

const Use& Oracle::use_of(const Trace& trace, const Touch& touch) {
    return touch.host ? trace.host[touch.index].use : trace.dispatches[touch.index].uses[touch.use];
}

Oracle::Oracle(const Trace& trace, bool every_byte) {
    std::map<uint64_t, std::set<uint64_t>> chosen;
    const auto choose = [&](uint32_t object, uint64_t offset, uint64_t length) {
        const Object& o = trace.objects[object];
        std::set<uint64_t>& bytes = chosen[o.allocation];
        const uint64_t first = o.offset + offset;
        if (every_byte) {
            for (uint64_t b = 0; b < length; ++b) bytes.insert(first + b);
        } else if (length > 0) {
            // A set of bytes that the same uses touch starts where one of them starts or ends.
            bytes.insert(first);
            bytes.insert(first + length);
        }
    };
    for (const Dispatch& dispatch : trace.dispatches) {
        for (const Use& use : dispatch.uses) choose(use.object, use.offset, use.length);
        for (const Producer& p : dispatch.producers) choose(p.object, p.offset, p.length);
    }
    for (const HostEvent& event : trace.host) {
        if (event.kind != HostEvent::Kind::access) continue;
        choose(event.use.object, event.use.offset, event.use.length);
    }
    for (const Use& use : trace.contents) choose(use.object, use.offset, use.length);

    std::map<std::pair<uint64_t, uint64_t>, size_t> number;
    for (const auto& [allocation, bytes] : chosen) {
        for (const uint64_t byte : bytes) {
            number[{allocation, byte}] = bytes_.size();
            bytes_.push_back({allocation, byte, false, {}});
        }
    }
    const auto touched = [&](const Use& use, auto&& body) {
        const Object& o = trace.objects[use.object];
        const uint64_t first = o.offset + use.offset;
        for (auto at = number.lower_bound({o.allocation, first});
             at != number.end() && at->first.first == o.allocation &&
             at->first.second < first + use.length;
             ++at) {
            body(bytes_[at->second]);
        }
    };
    const auto add = [&](const Use& use, bool host, size_t index, size_t which) {
        for (const bool write : {false, true}) {
            const auto part = static_cast<uint8_t>(write ? Access::write : Access::read);
            if ((static_cast<uint8_t>(use.access) & part) == 0) continue;
            touched(use, [&](Byte& byte) {
                byte.touches.push_back(
                    {host, static_cast<uint32_t>(index), static_cast<uint32_t>(which), write});
            });
        }
    };
    for (size_t d = 0; d < trace.dispatches.size(); ++d) {
        const auto& uses = trace.dispatches[d].uses;
        for (size_t u = 0; u < uses.size(); ++u) add(uses[u], false, d, u);
    }
    for (size_t h = 0; h < trace.host.size(); ++h) {
        if (trace.host[h].kind == HostEvent::Kind::access) add(trace.host[h].use, true, h, 0);
    }
    for (const Use& use : trace.contents) {
        touched(use, [](Byte& byte) { byte.defined = true; });
    }
}

// Whether one single ordering puts all of `a` before all of `b`, which comes later.
bool Oracle::ordered(const Trace& trace, const Schedule& order, const Touch& a, const Touch& b) {
    const Step& first = order.of(a);
    const Step& second = order.of(b);
    const auto index_of = [&](HostEvent::Kind kind, uint32_t commands) {
        for (size_t h = 0; h < trace.host.size(); ++h) {
            const HostEvent& event = trace.host[h];
            if (event.kind == kind && event.commands == commands && event.completed) return h;
        }
        return trace.host.size();
    };
    if (a.host) return true;
    const size_t waited = index_of(HostEvent::Kind::wait, first.commands);
    if (b.host) return waited < b.index;
    const uint32_t object = use_of(trace, a).object, other = use_of(trace, b).object;
    const bool tracked = object == other && trace.objects[object].tracked;
    if (first.commands != second.commands) {
        return tracked || waited < index_of(HostEvent::Kind::commit, second.commands);
    }
    if (first.encoder != second.encoder) return tracked;
    const Encoder& encoder = trace.command_buffers[first.commands].encoders[first.encoder];
    if (!encoder.concurrent) return true;
    for (uint32_t c = first.at + 1; c < second.at; ++c) {
        if (encoder.commands[c].kind != Command::Kind::barrier) continue;
        const Barrier& barrier = trace.barriers[encoder.commands[c].index];
        const auto has = [&](uint32_t id) {
            return std::count(barrier.objects.begin(), barrier.objects.end(), id) > 0;
        };
        if (barrier.broad || (has(object) && has(other))) return true;
    }
    return false;
}

Oracle::Found Oracle::examine(const Trace& trace, bool first_only) const {
    const Schedule order(trace);
    Found found;
    const auto enough = [&] {
        return first_only &&
               !(found.hazards.empty() && found.unwritten.empty() && found.wrong.empty());
    };
    for (const Byte& byte : bytes_) {
        if (enough()) return found;
        std::vector<Touch> touches;
        for (const Touch& touch : byte.touches) {
            if (order.of(touch).rank >= 0) touches.push_back(touch);
        }
        const auto rank = [&](const Touch& touch) { return order.of(touch).rank; };
        std::stable_sort(touches.begin(), touches.end(),
                         [&](const Touch& a, const Touch& b) { return rank(a) < rank(b); });
        std::set<int64_t> writers;
        for (const Touch& touch : touches) {
            if (touch.write) writers.insert(rank(touch));
        }
        for (size_t j = 0; j < touches.size(); ++j) {
            const Touch& to = touches[j];
            // Back from `to` to the last step that writes this byte, that one included.
            int64_t writer = -1;
            for (size_t i = j; i-- > 0;) {
                const Touch& from = touches[i];
                if (rank(from) == rank(to)) continue;
                if (writer >= 0 && rank(from) < writer) break;
                if (writer < 0 && writers.contains(rank(from))) writer = rank(from);
                // What a step reads that also writes is overtaken by its own write.
                if (rank(from) == writer && !from.write) continue;
                if (!from.write && !to.write) continue;
                if (!ordered(trace, order, from, to)) {
                    found.hazards.push_back({from, to, byte.allocation, byte.byte});
                }
            }
            if (to.write) continue;
            if (writer < 0 && !byte.defined) {
                found.unwritten.push_back({to, to, byte.allocation, byte.byte});
            }
            if (to.host) continue;
            const Use& use = use_of(trace, to);
            const Touch* by = nullptr;
            for (const Touch& touch : touches) {
                if (touch.write && rank(touch) == writer) by = &touch;
            }
            for (const Producer& stated : trace.dispatches[to.index].producers) {
                const uint64_t first = trace.objects[use.object].offset + stated.offset;
                if (stated.object != use.object || byte.byte < first ||
                    byte.byte >= first + stated.length) {
                    continue;
                }
                bool same = false;
                if (by == nullptr) {
                    same = stated.dispatch == kNone && stated.label == "contents" && byte.defined;
                } else if (by->host) {
                    same = stated.dispatch == kNone && stated.label == "host";
                } else {
                    same = stated.dispatch == kNone
                               ? stated.label == trace.dispatches[by->index].label
                               : stated.dispatch == by->index;
                }
                if (!same) found.wrong.push_back({to, to, byte.allocation, byte.byte});
            }
        }
    }
    return found;
}

std::vector<Oracle::Hazard> Oracle::hazards(const Trace& trace) const {
    return examine(trace, false).hazards;
}
std::vector<Oracle::Hazard> Oracle::unwritten(const Trace& trace) const {
    return examine(trace, false).unwritten;
}
std::vector<Oracle::Hazard> Oracle::wrong_producers(const Trace& trace) const {
    return examine(trace, false).wrong;
}
bool Oracle::unsound(const Trace& trace) const {
    const Found found = examine(trace, true);
    return !(found.hazards.empty() && found.unwritten.empty() && found.wrong.empty());
}

bool Oracle::all_ordered(const Trace& trace) const {
    const Schedule order(trace);
    std::vector<Touch> touches;
    for (const Byte& byte : bytes_) {
        for (const Touch& touch : byte.touches) {
            if (order.of(touch).rank >= 0) touches.push_back(touch);
        }
    }
    std::sort(touches.begin(), touches.end());
    touches.erase(std::unique(touches.begin(), touches.end()), touches.end());
    std::stable_sort(touches.begin(), touches.end(), [&](const Touch& a, const Touch& b) {
        return order.of(a).rank < order.of(b).rank;
    });
    const size_t n = touches.size();
    // before[j][i]: touch i happens before touch j, by any chain.
    std::vector<std::vector<char>> before(n, std::vector<char>(n, 0));
    for (size_t j = 0; j < n; ++j) {
        for (size_t i = j; i-- > 0;) {
            if (order.of(touches[i]).rank == order.of(touches[j]).rank) continue;
            // Tracking orders conflicts; two reads of a tracked buffer may overlap.
            if (!touches[i].write && !touches[j].write) continue;
            if (before[j][i] != 0 || !ordered(trace, order, touches[i], touches[j])) continue;
            before[j][i] = 1;
            for (size_t k = 0; k < i; ++k) before[j][k] |= before[i][k];
        }
    }
    for (const Byte& byte : bytes_) {
        for (const Touch& a : byte.touches) {
            for (const Touch& b : byte.touches) {
                if (order.of(a).rank < 0 || order.of(a).rank >= order.of(b).rank) continue;
                if (!a.write && !b.write) continue;
                // A kernel in place reads a byte before it writes it: its write speaks for both.
                const auto overtakes = [&](const Touch& touch) {
                    return touch.write && touch.host == a.host && touch.index == a.index;
                };
                if (!a.write && std::any_of(byte.touches.begin(), byte.touches.end(), overtakes)) {
                    continue;
                }
                const auto at = [&](const Touch& touch) {
                    return static_cast<size_t>(std::find(touches.begin(), touches.end(), touch) -
                                               touches.begin());
                };
                if (before[at(b)][at(a)] == 0) return false;
            }
        }
    }
    return true;
}

}  // namespace muser::audit
