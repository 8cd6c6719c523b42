// Findings that need no ordering: declarations against what was seen, and lifetimes.
#include <algorithm>

#include "audit/checker.h"

namespace muser::audit {
namespace {

struct Span {
    uint64_t begin, end;
};

// The bytes of one object that uses read (or write), ascending and merged.
std::vector<Span> spans(const std::vector<Use>& uses, uint32_t object, bool write) {
    std::vector<Span> all;
    for (const Use& use : uses) {
        if (use.object != object || use.length == 0) continue;
        if (write ? writes(use.access) : reads(use.access)) {
            all.push_back({use.offset, use.offset + use.length});
        }
    }
    std::sort(all.begin(), all.end(), [](Span a, Span b) { return a.begin < b.begin; });
    std::vector<Span> merged;
    for (const Span& span : all) {
        if (!merged.empty() && span.begin <= merged.back().end) {
            merged.back().end = std::max(merged.back().end, span.end);
        } else {
            merged.push_back(span);
        }
    }
    return merged;
}

// What `all` has and `but` has not.
std::vector<Span> without(const std::vector<Span>& all, const std::vector<Span>& but) {
    std::vector<Span> out;
    for (const Span& span : all) {
        uint64_t at = span.begin;
        for (const Span& hole : but) {
            if (hole.end <= at || hole.begin >= span.end) continue;
            if (hole.begin > at) out.push_back({at, hole.begin});
            at = std::max(at, hole.end);
        }
        if (at < span.end) out.push_back({at, span.end});
    }
    return out;
}

std::string argument_of(const std::vector<Use>& uses, uint32_t object) {
    for (const Use& use : uses) {
        if (use.object == object) return use.argument;
    }
    return {};
}

}  // namespace

void Checker::add_declaration_findings(std::vector<Finding>& out) const {
    for (const Node& node : analysis_.nodes) {
        if (node.dispatch == kNone || !trace_.dispatches[node.dispatch].observed) continue;
        const Dispatch& dispatch = trace_.dispatches[node.dispatch];
        std::vector<uint32_t> objects;
        for (const auto* uses : {&dispatch.uses, &dispatch.touched}) {
            for (const Use& use : *uses) {
                if (std::find(objects.begin(), objects.end(), use.object) == objects.end()) {
                    objects.push_back(use.object);
                }
            }
        }
        for (const uint32_t object : objects) {
            for (const bool write : {false, true}) {
                const auto declared = spans(dispatch.uses, object, write);
                const auto touched = spans(dispatch.touched, object, write);
                const auto add = [&](Kind kind, const Span& span) {
                    Finding finding;
                    finding.kind = kind;
                    Place place;
                    place.closure = dispatch.label;
                    place.layer = dispatch.layer;
                    place.kernel = dispatch.kernel;
                    place.argument = argument_of(dispatch.uses, object);
                    place.buffer = trace_.objects[object].label;
                    place.access = write ? Access::write : Access::read;
                    place.begin = span.begin;
                    place.end = span.end;
                    place.object = object;
                    place.dispatch = node.dispatch;
                    place.commands = node.commands;
                    place.encoder = node.encoder;
                    const std::string bytes = "bytes " + std::to_string(span.begin) + ".." +
                                              std::to_string(span.end) + " of '" + place.buffer +
                                              "'";
                    const std::string verb = write ? "write" : "read";
                    finding.sentence =
                        std::string(name(kind)) + ": " + place.closure + " (" + place.kernel +
                        ") " +
                        (kind == Kind::undeclared
                             ? verb + "s " + bytes + " without declaring it."
                             : "declares to " + verb + " " + bytes + " and does not.");
                    finding.repair = kind == Kind::undeclared
                                         ? "declare the access: ordering is judged by declarations"
                                         : "declare what is touched: a wide range hides that bytes "
                                           "are never written";
                    finding.places = {std::move(place)};
                    out.push_back(std::move(finding));
                };
                for (const Span& span : without(touched, declared)) add(Kind::undeclared, span);
                for (const Span& span : without(declared, touched)) add(Kind::untouched, span);
            }
        }
    }
}

void Checker::add_lifetime_findings(std::vector<Finding>& out) const {
    for (uint32_t h = 0; h < trace_.host.size(); ++h) {
        const HostEvent& event = trace_.host[h];
        const bool reuse = event.kind == HostEvent::Kind::reuse;
        if (!reuse && event.kind != HostEvent::Kind::release) continue;
        const uint32_t object = event.use.object;
        const std::string& label = trace_.objects[object].label;
        std::vector<bool> told(trace_.command_buffers.size(), false);
        for (const Node& node : analysis_.nodes) {
            Finding finding;
            finding.kind = Kind::lifetime;
            Place place;
            place.buffer = label;
            place.object = object;
            if (node.dispatch == kNone) {
                if (node.host_event < h || trace_.host[node.host_event].use.object != object) {
                    continue;
                }
                place.closure = "host";
                place.host_event = node.host_event;
                finding.sentence = "LIFETIME: the host uses '" + label + "' after it was " +
                                   (reuse ? "handed on." : "released.");
                finding.repair = "keep it until its last use";
            } else {
                const uint32_t c = node.commands;
                const Dispatch& dispatch = trace_.dispatches[node.dispatch];
                const bool uses = std::any_of(dispatch.uses.begin(), dispatch.uses.end(),
                                              [&](const Use& use) { return use.object == object; });
                if (told[c] || !uses || waited_[c] < h) continue;
                const bool encoded_after = begun_[c] > h;
                // Retained references keep the object, not what a pool does with its memory.
                if (!reuse && !encoded_after && trace_.command_buffers[c].retained) continue;
                told[c] = true;
                place.closure = dispatch.label;
                place.layer = dispatch.layer;
                place.kernel = dispatch.kernel;
                place.dispatch = node.dispatch;
                place.commands = c;
                place.encoder = node.encoder;
                const bool flying = committed_[c] < h;
                finding.sentence =
                    "LIFETIME: '" + label + "' is " + (reuse ? "handed on" : "released") +
                    (encoded_after
                         ? " before command buffer " + std::to_string(c) + ", which uses it in "
                     : flying ? " while command buffer " + std::to_string(c) +
                                    " is in flight, which uses it in "
                              : " between encoding and commit of command buffer " +
                                    std::to_string(c) + ", which uses it in ") +
                    place.closure + ".";
                finding.repair = encoded_after ? "keep it until its last use"
                                               : "a completed wait for command buffer " +
                                                     std::to_string(c) + " before";
            }
            finding.places = {std::move(place)};
            out.push_back(std::move(finding));
        }
    }
}

}  // namespace muser::audit
