#include "audit/checker.h"

#include <algorithm>
#include <unordered_map>

namespace muser::audit {
namespace {

// Every allocation cut where an access begins or ends: within a piece all bytes have one history.
class Pieces {
  public:
    explicit Pieces(const Trace& trace) {
        for (const Use& use : trace.contents) add(trace, use);
        for (const Dispatch& dispatch : trace.dispatches) {
            for (const Use& use : dispatch.uses) add(trace, use);
            for (const Producer& p : dispatch.producers) {
                add(trace, {p.object, Access::read, p.offset, p.length, {}});
            }
        }
        for (const HostEvent& event : trace.host) {
            if (event.kind == HostEvent::Kind::access) add(trace, event.use);
        }
        size_t first = 0;
        for (auto& [allocation, cuts] : cuts_) {
            std::sort(cuts.at.begin(), cuts.at.end());
            cuts.at.erase(std::unique(cuts.at.begin(), cuts.at.end()), cuts.at.end());
            cuts.first = first;
            first += cuts.at.size();
        }
        count_ = first;
    }

    size_t count() const { return count_; }

    // Calls body(piece, begin, end) for each piece of a range of an object, in order.
    template <class Body>
    void each(const Trace& trace, uint32_t object, uint64_t offset, uint64_t length,
              Body&& body) const {
        if (length == 0) return;
        const Object& held = trace.objects[object];
        const Cuts& cuts = cuts_.at(held.allocation);
        const uint64_t begin = held.offset + offset, end = begin + length;
        auto at = std::lower_bound(cuts.at.begin(), cuts.at.end(), begin);
        for (; *at < end; ++at) {
            body(cuts.first + static_cast<size_t>(at - cuts.at.begin()), *at, *(at + 1));
        }
    }

  private:
    struct Cuts {
        std::vector<uint64_t> at;
        size_t first = 0;  // number of the piece that starts at at[0]
    };
    void add(const Trace& trace, const Use& use) {
        if (use.length == 0) return;
        const Object& object = trace.objects[use.object];
        std::vector<uint64_t>& at = cuts_[object.allocation].at;
        at.push_back(object.offset + use.offset);
        at.push_back(object.offset + use.offset + use.length);
    }
    std::unordered_map<uint64_t, Cuts> cuts_;
    size_t count_ = 0;
};

// The state of a piece: the last write (one node's; two where it wrote through two objects) and
// the reads since.
struct Piece {
    std::vector<uint32_t> writes, reads;
    bool defined = false;
};

}  // namespace

Checker::Checker(const Trace& trace) : trace_(trace) {
    lay_out();
    analyse();
}

// Program order: command buffers in commit order, host accesses where they stand between commits.
void Checker::lay_out() {
    const size_t buffers = trace_.command_buffers.size();
    begun_.assign(buffers, kNone);
    committed_.assign(buffers, kNone);
    waited_.assign(buffers, kNone);
    sites_.assign(trace_.barriers.size(), {});
    for (uint32_t h = 0; h < trace_.host.size(); ++h) {
        const HostEvent& event = trace_.host[h];
        switch (event.kind) {
            case HostEvent::Kind::begin:
                begun_[event.commands] = h;
                break;
            case HostEvent::Kind::wait:
                if (event.completed && waited_[event.commands] == kNone) {
                    waited_[event.commands] = h;
                }
                break;
            case HostEvent::Kind::access:
                analysis_.nodes.push_back({kNone, h, kNone, kNone, 0});
                break;
            case HostEvent::Kind::commit:
                committed_[event.commands] = h;
                for (const Encoder& encoder : trace_.command_buffers[event.commands].encoders) {
                    const auto id = static_cast<uint32_t>(concurrent_.size());
                    concurrent_.push_back(encoder.concurrent);
                    broad_.emplace_back();
                    named_.emplace_back();
                    for (uint32_t i = 0; i < encoder.commands.size(); ++i) {
                        const Command& command = encoder.commands[i];
                        if (command.kind == Command::Kind::dispatch) {
                            analysis_.nodes.push_back(
                                {command.index, kNone, event.commands, id, i});
                        } else {
                            sites_[command.index] = {id, i, event.commands};
                            (trace_.barriers[command.index].broad ? broad_ : named_)[id].push_back(
                                command.index);
                        }
                    }
                }
                break;
            case HostEvent::Kind::release:
            case HostEvent::Kind::reuse:
                break;
        }
    }
}

void Checker::analyse() {
    const Pieces pieces(trace_);
    std::vector<Piece> state(pieces.count());
    for (const Use& use : trace_.contents) {
        pieces.each(trace_, use.object, use.offset, use.length,
                    [&](size_t piece, uint64_t, uint64_t) { state[piece].defined = true; });
    }
    std::vector<Pair>& pairs = analysis_.pairs;
    const auto use_of = [&](const Node& node, uint32_t use) -> const Use& {
        return node.dispatch == kNone ? trace_.host[node.host_event].use
                                      : trace_.dispatches[node.dispatch].uses[use];
    };
    for (uint32_t n = 0; n < analysis_.nodes.size(); ++n) {
        const Node node = analysis_.nodes[n];
        const auto first_access = static_cast<uint32_t>(analysis_.accesses.size());
        const auto uses = node.dispatch == kNone
                              ? 1u
                              : static_cast<uint32_t>(trace_.dispatches[node.dispatch].uses.size());
        // What a dispatch reads is judged before what it writes: in place is no conflict.
        for (const bool write : {false, true}) {
            for (uint32_t u = 0; u < uses; ++u) {
                const Use& use = use_of(node, u);
                if (write ? !writes(use.access) : !reads(use.access)) continue;
                const auto access = static_cast<uint32_t>(analysis_.accesses.size());
                analysis_.accesses.push_back({n, use.object, u, write});
                const size_t first_pair = pairs.size();
                const auto conflict = [&](uint32_t with, uint64_t begin, uint64_t end) {
                    for (size_t p = first_pair; p < pairs.size(); ++p) {
                        if (pairs[p].from == with && pairs[p].end == begin) {
                            pairs[p].end = end;
                            return;
                        }
                    }
                    pairs.push_back({with, access, begin, end});
                };
                pieces.each(trace_, use.object, use.offset, use.length,
                            [&](size_t piece, uint64_t begin, uint64_t end) {
                                Piece& held = state[piece];
                                for (const uint32_t w : held.writes) {
                                    if (w < first_access) conflict(w, begin, end);
                                }
                                if (!write) {
                                    check_producer(access, held.writes, held.defined, begin, end);
                                    held.reads.push_back(access);
                                    return;
                                }
                                for (const uint32_t r : held.reads) {
                                    if (r < first_access) conflict(r, begin, end);
                                }
                            });
            }
        }
        for (uint32_t a = first_access; a < analysis_.accesses.size(); ++a) {
            const AccessRef& access = analysis_.accesses[a];
            if (!access.write) continue;
            const Use& use = use_of(node, access.use);
            pieces.each(trace_, use.object, use.offset, use.length,
                        [&](size_t piece, uint64_t, uint64_t) {
                            Piece& held = state[piece];
                            held.reads.clear();
                            held.defined = true;
                            if (!held.writes.empty() && held.writes.front() < first_access) {
                                held.writes.clear();
                            }
                            held.writes.push_back(a);
                        });
        }
    }
}

void Checker::check_producer(uint32_t access, const std::vector<uint32_t>& writers, bool defined,
                             uint64_t begin, uint64_t end) {
    const AccessRef& reader = analysis_.accesses[access];
    const Node& node = analysis_.nodes[reader.node];
    const auto note = [&](std::vector<Unwritten>& list) {
        if (!list.empty() && list.back().access == access && list.back().end == begin) {
            list.back().end = end;
        } else {
            list.push_back({access, begin, end});
        }
    };
    if (writers.empty()) note(defined ? analysis_.held : analysis_.unwritten);
    if (node.dispatch == kNone) return;
    const uint32_t found = writers.empty() ? kNone : analysis_.accesses[writers.back()].node;
    const uint64_t base = trace_.objects[reader.object].offset;
    const std::vector<Producer>& producers = trace_.dispatches[node.dispatch].producers;
    for (uint32_t p = 0; p < producers.size(); ++p) {
        const Producer& stated = producers[p];
        const uint64_t first = base + stated.offset, last = first + stated.length;
        if (stated.object != reader.object || begin < first || end > last) continue;
        const bool host = found != kNone && analysis_.nodes[found].dispatch == kNone;
        bool right = false;
        if (found == kNone) {
            right = defined && stated.dispatch == kNone && stated.label == "contents";
        } else if (host) {
            right = stated.dispatch == kNone && stated.label == "host";
        } else if (stated.dispatch != kNone) {
            right = stated.dispatch == analysis_.nodes[found].dispatch;
        } else {
            right = stated.label == trace_.dispatches[analysis_.nodes[found].dispatch].label;
        }
        if (right) continue;
        std::vector<WrongProducer>& wrong = analysis_.wrong;
        if (!wrong.empty() && wrong.back().access == access && wrong.back().found == found &&
            wrong.back().expected == p && wrong.back().end == begin) {
            wrong.back().end = end;
        } else {
            wrong.push_back({access, begin, end, found, p});
        }
    }
}

bool Checker::same_encoder(const AccessRef& from, const AccessRef& to) const {
    const uint32_t encoder = analysis_.nodes[from.node].encoder;
    return encoder != kNone && encoder == analysis_.nodes[to.node].encoder;
}

bool Checker::covered_by_edge(const AccessRef& from, const AccessRef& to) const {
    const Node& a = analysis_.nodes[from.node];
    const Node& b = analysis_.nodes[to.node];
    if (a.dispatch == kNone) return true;  // the host's own order, or the commit
    if (b.dispatch == kNone) return waited_[a.commands] < b.host_event;
    if (a.encoder == b.encoder) return !concurrent_[a.encoder];
    if (from.object == to.object && trace_.objects[from.object].tracked) return true;
    return a.commands != b.commands && waited_[a.commands] < committed_[b.commands];
}

Cover Checker::cover(const Pair& pair) const {
    const AccessRef& from = analysis_.accesses[pair.from];
    const AccessRef& to = analysis_.accesses[pair.to];
    Cover cover;
    cover.edge = covered_by_edge(from, to);
    if (cover.edge || !same_encoder(from, to)) return cover;
    const uint32_t encoder = analysis_.nodes[from.node].encoder;
    const uint32_t begin = analysis_.nodes[from.node].position;
    const uint32_t end = analysis_.nodes[to.node].position;
    const auto between = [&](const std::vector<uint32_t>& list, auto&& body) {
        auto at = std::lower_bound(
            list.begin(), list.end(), begin,
            [&](uint32_t barrier, uint32_t p) { return sites_[barrier].position < p; });
        for (; at != list.end() && sites_[*at].position < end; ++at) body(*at);
    };
    between(broad_[encoder], [&](uint32_t barrier) { cover.barriers.push_back(barrier); });
    between(named_[encoder], [&](uint32_t barrier) {
        const std::vector<uint32_t>& objects = trace_.barriers[barrier].objects;
        const auto names = [&](uint32_t object) {
            return std::find(objects.begin(), objects.end(), object) != objects.end();
        };
        if (names(from.object) && names(to.object)) cover.barriers.push_back(barrier);
    });
    return cover;
}

bool Checker::any() const {
    if (!analysis_.unwritten.empty() || !analysis_.wrong.empty()) return true;
    for (const Pair& pair : analysis_.pairs) {
        if (!cover(pair)) return true;
    }
    std::vector<Finding> rest;
    add_declaration_findings(rest);
    add_lifetime_findings(rest);
    return !rest.empty();
}

std::vector<uint32_t> Checker::redundant() const {
    std::vector<bool> needed(trace_.barriers.size(), false);
    for (const Pair& pair : analysis_.pairs) {
        const Cover covered = cover(pair);
        if (!covered.edge && covered.barriers.size() == 1) needed[covered.barriers[0]] = true;
    }
    std::vector<uint32_t> out;
    for (uint32_t b = 0; b < needed.size(); ++b) {
        if (!needed[b] && sites_[b].encoder != kNone) out.push_back(b);
    }
    return out;
}

std::vector<uint32_t> Checker::redundant_together() const {
    // Per pair the number of covers left; per barrier the pairs that it covers.
    std::vector<uint32_t> left;
    std::vector<std::vector<uint32_t>> covers(trace_.barriers.size());
    for (const Pair& pair : analysis_.pairs) {
        const Cover covered = cover(pair);
        if (covered.edge || covered.barriers.empty()) continue;
        for (const uint32_t b : covered.barriers) {
            covers[b].push_back(static_cast<uint32_t>(left.size()));
        }
        left.push_back(static_cast<uint32_t>(covered.barriers.size()));
    }
    std::vector<uint32_t> out;
    for (uint32_t b = static_cast<uint32_t>(covers.size()); b-- > 0;) {
        if (sites_[b].encoder == kNone) continue;
        const auto needed = [&](uint32_t pair) { return left[pair] == 1; };
        if (std::any_of(covers[b].begin(), covers[b].end(), needed)) continue;
        for (const uint32_t pair : covers[b]) --left[pair];
        out.push_back(b);
    }
    std::reverse(out.begin(), out.end());
    return out;
}

}  // namespace muser::audit
