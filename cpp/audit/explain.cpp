// What the checker's results say in words: see finding.h. Nothing is decided here.
#include <algorithm>
#include <map>

#include "audit/checker.h"

namespace muser::audit {
namespace {

std::string quoted(const std::string& text) { return "'" + text + "'"; }

std::string bytes_text(const Place& place) {
    return "bytes " + std::to_string(place.begin) + ".." + std::to_string(place.end) + " of " +
           quoted(place.buffer);
}

// "blk.3.attention (attend_chunks_f16, argument q)"
std::string who(const Place& place) {
    if (place.kernel.empty() && place.argument.empty()) return place.closure;
    std::string text = place.closure + " (" + place.kernel;
    if (!place.argument.empty()) text += ", argument " + place.argument;
    return text + ")";
}

std::string command_buffer(uint32_t commands) {
    return "command buffer " + std::to_string(commands);
}

const char* pair_name(bool first_writes, bool second_writes) {
    if (!first_writes) return "WAR";
    return second_writes ? "WAW" : "RAW";
}

std::string list_of(const Trace& trace, const std::vector<uint32_t>& objects) {
    std::string out;
    for (const uint32_t object : objects) {
        out += (out.empty() ? "" : ", ") + quoted(trace.objects[object].label);
    }
    return out;
}

}  // namespace

Place Checker::place(uint32_t access, uint64_t begin, uint64_t end) const {
    const AccessRef& ref = analysis_.accesses[access];
    const Node& node = analysis_.nodes[ref.node];
    const Object& object = trace_.objects[ref.object];
    Place out;
    out.buffer = object.label;
    out.access = ref.write ? Access::write : Access::read;
    out.begin = begin - object.offset;
    out.end = end - object.offset;
    out.object = ref.object;
    out.dispatch = node.dispatch;
    out.host_event = node.host_event;
    out.commands = node.commands;
    out.encoder = node.encoder;
    if (node.dispatch == kNone) {
        out.closure = "host";
        const std::string& label = trace_.host[node.host_event].label;
        if (!label.empty()) out.closure += ": " + label;
    } else {
        const Dispatch& dispatch = trace_.dispatches[node.dispatch];
        out.closure = dispatch.label;
        out.layer = dispatch.layer;
        out.kernel = dispatch.kernel;
        out.argument = dispatch.uses[ref.use].argument;
    }
    return out;
}

// Why what lies between the two does not order them, and the least that would.
void Checker::explain(const Pair& pair, Finding& finding) const {
    const AccessRef& from = analysis_.accesses[pair.from];
    const AccessRef& to = analysis_.accesses[pair.to];
    const Node& a = analysis_.nodes[from.node];
    const Node& b = analysis_.nodes[to.node];
    const std::string first = quoted(trace_.objects[from.object].label);
    const std::string second = quoted(trace_.objects[to.object].label);
    const std::string both = from.object == to.object ? first : first + ", " + second;
    if (b.dispatch == kNone) {
        const bool failed = std::any_of(
            trace_.host.begin(), trace_.host.begin() + b.host_event, [&](const HostEvent& event) {
                return event.kind == HostEvent::Kind::wait && event.commands == a.commands;
            });
        finding.ordering =
            failed ? "the wait for " + command_buffer(a.commands) + " ended without its completion"
                   : "the host has not waited for " + command_buffer(a.commands);
        for (uint32_t c = 0; c < waited_.size(); ++c) {
            if (waited_[c] < b.host_event && committed_[c] > committed_[a.commands]) {
                finding.ordering += "; it waited for " + command_buffer(c) +
                                    ", from which nothing follows for an earlier one";
                break;
            }
        }
        finding.repair = "a completed wait for " + command_buffer(a.commands) +
                         " before the host " + (to.write ? "writes" : "reads");
        return;
    }
    if (a.encoder != b.encoder) {
        const bool buffers = a.commands != b.commands;
        finding.ordering =
            buffers
                ? "command buffers " + std::to_string(a.commands) + " and " +
                      std::to_string(b.commands) + " start in commit order and may overlap"
                : "encoder " + std::to_string(a.encoder) + " has ended, and its barriers with it";
        if (from.object != to.object) {
            finding.ordering += "; tracking covers each of " + both + " alone";
            finding.repair = "one tracked buffer object for both accesses";
        } else {
            finding.ordering += "; " + first + " is not tracked";
            finding.repair = "hazard tracking of " + first;
        }
        if (buffers) {
            finding.repair += ", or a wait for " + command_buffer(a.commands) + " before " +
                              command_buffer(b.commands) + " is committed";
        }
        return;
    }
    const std::vector<uint32_t>& named = named_[a.encoder];
    std::vector<uint32_t> objects;
    for (const uint32_t barrier : named) {
        if (sites_[barrier].position < a.position || sites_[barrier].position > b.position) {
            continue;
        }
        finding.strict = true;
        for (const uint32_t object : trace_.barriers[barrier].objects) {
            if (std::find(objects.begin(), objects.end(), object) == objects.end()) {
                objects.push_back(object);
            }
        }
    }
    finding.ordering =
        finding.strict
            ? "the barriers between the two name " +
                  (objects.empty() ? std::string("nothing") : list_of(trace_, objects)) +
                  (from.object == to.object ? ", not " + first
                                            : ", not both of " + both + " at once")
            : "both are in one epoch of a concurrent encoder: no barrier lies between them";
    finding.repair = "a barrier on " + both + " before " + who(place(pair.to, 0, 0));
}

Finding Checker::finding_of(const Pair& pair) const {
    const AccessRef& from = analysis_.accesses[pair.from];
    const AccessRef& to = analysis_.accesses[pair.to];
    Finding finding;
    finding.places = {place(pair.from, pair.begin, pair.end), place(pair.to, pair.begin, pair.end)};
    const Place& first = finding.places[0];
    const Place& second = finding.places[1];
    const char* kind = pair_name(from.write, to.write);
    const bool host = analysis_.nodes[to.node].dispatch == kNone;
    finding.kind = host ? Kind::host : !from.write ? Kind::war : to.write ? Kind::waw : Kind::raw;
    if (host) finding.pair = kind;
    const std::string label =
        std::string(name(finding.kind)) + (host ? std::string(" ") + kind : "");
    finding.sentence = label + ": " + who(second) + (to.write ? " writes " : " reads ") +
                       bytes_text(second) + ", which " + who(first) + " may still have to " +
                       (from.write ? "write" : "read") + ".";
    explain(pair, finding);
    return finding;
}

std::vector<Finding> Checker::findings() const {
    std::vector<std::pair<uint32_t, Finding>> found;  // by node
    for (const Pair& pair : analysis_.pairs) {
        if (!cover(pair)) found.emplace_back(analysis_.accesses[pair.to].node, finding_of(pair));
    }
    for (const Unwritten& read : analysis_.unwritten) {
        Finding finding;
        finding.kind = Kind::uninitialised;
        finding.places = {place(read.access, read.begin, read.end)};
        finding.sentence = "UNINITIALISED: " + who(finding.places[0]) + " reads " +
                           bytes_text(finding.places[0]) + ", which nothing has written before.";
        found.emplace_back(analysis_.accesses[read.access].node, std::move(finding));
    }
    for (const WrongProducer& wrong : analysis_.wrong) {
        const uint32_t node = analysis_.accesses[wrong.access].node;
        const Producer& stated =
            trace_.dispatches[analysis_.nodes[node].dispatch].producers[wrong.expected];
        Finding finding;
        finding.kind = Kind::order;
        finding.places = {place(wrong.access, wrong.begin, wrong.end)};
        std::string writer = "nobody";
        if (wrong.found != kNone) {
            const Node& by = analysis_.nodes[wrong.found];
            writer = by.dispatch == kNone ? "the host" : trace_.dispatches[by.dispatch].label;
            if (by.dispatch != kNone && writer == stated.label) {
                writer += " of another dispatch";
            }
        }
        finding.sentence = "ORDER: " + who(finding.places[0]) + " reads " +
                           bytes_text(finding.places[0]) + " as written by " + writer +
                           "; the graph states " + stated.label + ".";
        finding.ordering = "in program order the last write before it is by " + writer;
        finding.repair =
            "encode " + stated.label + " as the last writer before " + finding.places[0].closure;
        found.emplace_back(node, std::move(finding));
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Finding> out;
    for (auto& [node, finding] : found) out.push_back(std::move(finding));
    add_declaration_findings(out);
    add_lifetime_findings(out);
    return out;
}

std::vector<Finding> Checker::redundant_findings() const {
    std::vector<uint32_t> orders(trace_.barriers.size());
    for (const Pair& pair : analysis_.pairs) {
        for (const uint32_t barrier : cover(pair).barriers) ++orders[barrier];
    }
    std::vector<Finding> out;
    for (const uint32_t barrier : redundant()) {
        const Site& site = sites_[barrier];
        const Barrier& what = trace_.barriers[barrier];
        Finding finding;
        finding.kind = Kind::redundant;
        finding.barrier = barrier;
        Place place;
        place.commands = site.commands;
        place.encoder = site.encoder;
        // The next dispatch of the encoder names the place.
        place.closure = "the end of the encoder";
        for (const Node& node : analysis_.nodes) {
            if (node.encoder != site.encoder || node.position < site.position) continue;
            place.closure = trace_.dispatches[node.dispatch].label;
            place.layer = trace_.dispatches[node.dispatch].layer;
            place.kernel = trace_.dispatches[node.dispatch].kernel;
            place.dispatch = node.dispatch;
            break;
        }
        const std::string kind =
            what.broad ? "broad barrier" : "barrier on " + list_of(trace_, what.objects);
        std::string why = " stands in a serial encoder, which orders everything itself.";
        if (concurrent_[site.encoder] && orders[barrier] == 0) why = " orders no conflicting pair.";
        if (concurrent_[site.encoder] && orders[barrier] == 1) {
            why = " orders one conflicting pair, which another barrier orders too.";
        }
        if (concurrent_[site.encoder] && orders[barrier] > 1) {
            why = " orders " + std::to_string(orders[barrier]) +
                  " conflicting pairs, each of which another barrier orders too.";
        }
        finding.sentence = "REDUNDANT: the " + kind + " before " + place.closure + why;
        finding.ordering = what.site;
        finding.places = {std::move(place)};
        out.push_back(std::move(finding));
    }
    return out;
}

}  // namespace muser::audit
