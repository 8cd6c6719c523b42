// The auditor: traces as lists of event dicts, one JSON Lines record each (docs/audit-trace.md).
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <optional>

#include "audit/checker.h"
#include "audit/mutate.h"
#include "audit/oracle.h"
#include "audit/order_edges.h"
#include "cpp/python/session.h"
#if !defined(__APPLE__)
#include "device/cuda/order.h"
#endif
#include "metal/stages.h"

namespace muser::python {
namespace {

using audit::kNone;

// ---- events to a trace ----

class Reader {
  public:
    audit::Trace read(const py::iterable& events) {
        for (const py::handle event : events) {
            ++line_;
            if (!py::isinstance<py::dict>(event)) refuse("it is not an object");
            add(py::cast<py::dict>(event));
        }
        audit::validate(trace_);
        return std::move(trace_);
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw ConfigError("event " + std::to_string(line_) + " of the trace: " + what,
                          {{"event", std::to_string(line_)}});
    }
    template <class T>
    T get(const py::dict& from, const char* key, std::optional<T> otherwise = {}) const {
        if (!from.contains(key)) {
            if (otherwise) return *otherwise;
            refuse(std::string("'") + key + "' is missing");
        }
        try {
            return py::cast<T>(from[key]);
        } catch (const py::cast_error&) {
            refuse(std::string("'") + key + "' has a wrong type or range");
        }
    }
    uint32_t find(const std::map<int64_t, uint32_t>& ids, int64_t id, const char* what) const {
        const auto at = ids.find(id);
        if (at == ids.end()) refuse(std::string("there is no ") + what + " " + std::to_string(id));
        return at->second;
    }
    uint32_t object(const py::dict& from) const {
        return find(objects_, get<int64_t>(from, "buffer"), "buffer");
    }
    uint32_t commands(const py::dict& from) const {
        if (!from.contains("commands")) {
            if (trace_.command_buffers.empty()) refuse("no command buffer has begun");
            return static_cast<uint32_t>(trace_.command_buffers.size()) - 1;
        }
        return find(commands_, get<int64_t>(from, "commands"), "command buffer");
    }
    audit::Encoder& encoder(const py::dict& from) {
        audit::CommandBuffer& buffer = trace_.command_buffers[commands(from)];
        if (buffer.encoders.empty()) refuse("the command buffer has no encoder yet");
        return buffer.encoders.back();
    }
    audit::Access access(const std::string& text) const {
        if (text == "read") return audit::Access::read;
        if (text == "write") return audit::Access::write;
        if (text == "read_write") return audit::Access::read_write;
        refuse("'access' is read, write or read_write, not '" + text + "'");
    }
    audit::Use use(const py::dict& from, std::optional<audit::Access> known = {}) const {
        audit::Use out;
        out.object = object(from);
        out.access = known ? *known : access(get<std::string>(from, "access"));
        out.offset = get<uint64_t>(from, "offset", 0);
        const uint64_t held = trace_.objects[out.object].length;
        const uint64_t rest = held > out.offset ? held - out.offset : 0;
        out.length = get<uint64_t>(from, "length", rest);
        if (from.contains("argument"))
            out.argument = py::cast<std::string>(py::str(from["argument"]));
        return out;
    }
    std::vector<audit::Use> uses(const py::dict& from, const char* key) const {
        std::vector<audit::Use> out;
        for (const py::handle entry : get<py::list>(from, key)) {
            if (!py::isinstance<py::dict>(entry)) refuse("an access is an object");
            out.push_back(use(py::cast<py::dict>(entry)));
        }
        return out;
    }
    void dispatch(const py::dict& event) {
        audit::Dispatch out;
        out.label = get<std::string>(event, "label", "");
        out.layer = get<int>(event, "layer", -1);
        out.kernel = get<std::string>(event, "kernel", "");
        out.uses = uses(event, "accesses");
        for (const py::handle entry : get<py::list>(event, "accesses")) {
            const auto fields = py::cast<py::dict>(entry);
            if (!fields.contains("producer")) continue;
            const audit::Use read = use(fields);
            out.producers.push_back({read.object, read.offset, read.length,
                                     get<std::string>(fields, "producer"), kNone});
        }
        out.observed = event.contains("touched");
        if (out.observed) out.touched = uses(event, "touched");
        encoder(event).commands.push_back(
            {audit::Command::Kind::dispatch, static_cast<uint32_t>(trace_.dispatches.size())});
        trace_.dispatches.push_back(std::move(out));
    }
    void barrier(const py::dict& event) {
        audit::Barrier out;
        out.broad = !event.contains("buffers");
        out.site = get<std::string>(event, "site", "");
        if (!out.broad) {
            for (const int64_t id : get<std::vector<int64_t>>(event, "buffers")) {
                out.objects.push_back(find(objects_, id, "buffer"));
            }
        }
        encoder(event).commands.push_back(
            {audit::Command::Kind::barrier, static_cast<uint32_t>(trace_.barriers.size())});
        trace_.barriers.push_back(std::move(out));
    }
    void host(audit::HostEvent::Kind kind, uint32_t buffer, bool completed, audit::Use touched = {},
              std::string label = {}) {
        trace_.host.push_back({kind, buffer, completed, std::move(touched), std::move(label)});
    }
    void add(const py::dict& event) {
        using Kind = audit::HostEvent::Kind;
        const auto kind = get<std::string>(event, "event");
        if (kind == "buffer") {
            const auto id = get<int64_t>(event, "id");
            const auto index = static_cast<uint32_t>(trace_.objects.size());
            if (!objects_.try_emplace(id, index).second) refuse("the buffer is there already");
            // Without an allocation of its own naming, a buffer is one; ids keep these apart.
            const bool named = event.contains("allocation");
            const auto allocation =
                named ? get<uint64_t>(event, "allocation") * 2 : static_cast<uint64_t>(id) * 2 + 1;
            trace_.objects.push_back(
                {get<std::string>(event, "label", "buffer " + std::to_string(id)), allocation,
                 get<uint64_t>(event, "offset", 0), get<uint64_t>(event, "length"),
                 get<bool>(event, "tracked", true)});
        } else if (kind == "contents") {
            trace_.contents.push_back(use(event, audit::Access::read));
        } else if (kind == "commands") {
            const auto index = static_cast<uint32_t>(trace_.command_buffers.size());
            if (!commands_.try_emplace(get<int64_t>(event, "id"), index).second) {
                refuse("the command buffer is there already");
            }
            trace_.command_buffers.push_back({{}, get<bool>(event, "retained", true)});
            host(Kind::begin, index, true);
        } else if (kind == "encoder") {
            trace_.command_buffers[commands(event)].encoders.push_back(
                {get<bool>(event, "concurrent", true), {}});
        } else if (kind == "dispatch") {
            dispatch(event);
        } else if (kind == "barrier") {
            barrier(event);
        } else if (kind == "commit") {
            host(Kind::commit, commands(event), true);
        } else if (kind == "wait") {
            host(Kind::wait, commands(event), get<bool>(event, "completed", true));
        } else if (kind == "host") {
            host(Kind::access, kNone, true, use(event), get<std::string>(event, "label", ""));
        } else if (kind == "release" || kind == "reuse") {
            host(kind == "reuse" ? Kind::reuse : Kind::release, kNone, true,
                 {object(event), audit::Access::read, 0, 0, {}});
        } else {
            refuse("there is no event '" + kind + "'");
        }
    }

    audit::Trace trace_;
    std::map<int64_t, uint32_t> objects_, commands_;
    size_t line_ = 0;
};

// ---- a trace to events ----

const char* access_name(audit::Access access) {
    return access == audit::Access::read    ? "read"
           : access == audit::Access::write ? "write"
                                            : "read_write";
}

py::dict event(const char* kind) {
    py::dict out;
    out["event"] = kind;
    return out;
}

void set_range(py::dict& out, const audit::Use& use) {
    out["buffer"] = use.object;
    out["offset"] = use.offset;
    out["length"] = use.length;
}

py::dict use_dict(const audit::Use& use) {
    py::dict out;
    out["argument"] = use.argument;
    out["access"] = access_name(use.access);
    set_range(out, use);
    return out;
}

py::dict dispatch_event(const audit::Dispatch& dispatch) {
    py::dict out = event("dispatch");
    out["label"] = dispatch.label;
    if (dispatch.layer >= 0) out["layer"] = dispatch.layer;
    out["kernel"] = dispatch.kernel;
    py::list accesses;
    for (const audit::Use& use : dispatch.uses) accesses.append(use_dict(use));
    out["accesses"] = accesses;
    return out;
}

void append_commands(py::list& out, const audit::Trace& trace, uint32_t c) {
    for (const audit::Encoder& encoder : trace.command_buffers[c].encoders) {
        py::dict begun = event("encoder");
        begun["commands"] = c;
        begun["concurrent"] = encoder.concurrent;
        out.append(begun);
        for (const audit::Command& command : encoder.commands) {
            if (command.kind == audit::Command::Kind::dispatch) {
                py::dict made = dispatch_event(trace.dispatches[command.index]);
                made["commands"] = c;
                out.append(made);
                continue;
            }
            const audit::Barrier& barrier = trace.barriers[command.index];
            py::dict made = event("barrier");
            made["commands"] = c;
            if (!barrier.broad) made["buffers"] = barrier.objects;
            if (!barrier.site.empty()) made["site"] = barrier.site;
            out.append(made);
        }
    }
}

py::list events_of(const audit::Trace& trace) {
    using Kind = audit::HostEvent::Kind;
    py::list out;
    for (uint32_t o = 0; o < trace.objects.size(); ++o) {
        const audit::Object& object = trace.objects[o];
        py::dict made = event("buffer");
        made["id"] = o;
        made["label"] = object.label;
        made["length"] = object.length;
        made["allocation"] = object.allocation;
        made["offset"] = object.offset;
        made["tracked"] = object.tracked;
        out.append(made);
    }
    for (const audit::Use& use : trace.contents) {
        py::dict made = event("contents");
        set_range(made, use);
        out.append(made);
    }
    for (const audit::HostEvent& at : trace.host) {
        py::dict made;
        switch (at.kind) {
            case Kind::begin:
                made = event("commands");
                made["id"] = at.commands;
                made["retained"] = trace.command_buffers[at.commands].retained;
                break;
            case Kind::commit:
                append_commands(out, trace, at.commands);
                made = event("commit");
                made["commands"] = at.commands;
                break;
            case Kind::wait:
                made = event("wait");
                made["commands"] = at.commands;
                made["completed"] = at.completed;
                break;
            case Kind::access:
                made = event("host");
                made["label"] = at.label;
                made["access"] = access_name(at.use.access);
                set_range(made, at.use);
                break;
            case Kind::release:
            case Kind::reuse:
                made = event(at.kind == Kind::reuse ? "reuse" : "release");
                made["buffer"] = at.use.object;
                break;
        }
        out.append(made);
    }
    return out;
}

// ---- results ----

py::dict place_dict(const audit::Place& place) {
    py::dict out;
    out["closure"] = place.closure;
    if (place.layer >= 0) out["layer"] = place.layer;
    if (!place.kernel.empty()) out["kernel"] = place.kernel;
    if (!place.argument.empty()) out["argument"] = place.argument;
    if (!place.buffer.empty()) {
        out["buffer"] = place.buffer;
        out["access"] = access_name(place.access);
        out["bytes"] = py::make_tuple(place.begin, place.end);
    }
    const auto number = [&](const char* key, uint32_t value) {
        if (value != kNone) out[key] = value;
    };
    number("dispatch", place.dispatch);
    number("host_event", place.host_event);
    number("commands", place.commands);
    number("encoder", place.encoder);
    number("object", place.object);
    return out;
}

py::dict finding_dict(const audit::Finding& finding) {
    py::dict out;
    out["kind"] = audit::name(finding.kind);
    if (!finding.pair.empty()) out["pair"] = finding.pair;
    out["sentence"] = finding.sentence;
    out["text"] = finding.text();
    py::list places;
    for (const audit::Place& place : finding.places) places.append(place_dict(place));
    out["places"] = places;
    if (!finding.ordering.empty()) out["ordering"] = finding.ordering;
    if (!finding.repair.empty()) out["repair"] = finding.repair;
    if (finding.strict) out["model"] = "strict";
    if (finding.barrier != kNone) out["barrier"] = finding.barrier;
    return out;
}

// Findings, and counts of what was looked at. The mutants are apart: `mutate`.
py::dict run_audit(const py::iterable& events) {
    const audit::Trace trace = Reader().read(events);
    std::vector<audit::Finding> findings;
    std::vector<uint32_t> together;
    uint64_t pairs = 0, accesses = 0;
    size_t redundant = 0;
    {
        const py::gil_scoped_release unlocked;
        const audit::Checker checker(trace);
        findings = checker.findings();
        for (audit::Finding& finding : checker.redundant_findings()) {
            findings.push_back(std::move(finding));
            ++redundant;
        }
        together = checker.redundant_together();
        pairs = checker.analysis().pairs.size();
        accesses = checker.analysis().accesses.size();
    }
    py::list found;
    for (const audit::Finding& finding : findings) found.append(finding_dict(finding));
    const auto broad = static_cast<uint64_t>(
        std::count_if(trace.barriers.begin(), trace.barriers.end(),
                      [](const audit::Barrier& barrier) { return barrier.broad; }));
    py::dict out;
    out["findings"] = found;
    out["barriers"] =
        py::dict(py::arg("broad") = broad, py::arg("targeted") = trace.barriers.size() - broad,
                 py::arg("redundant") = redundant);
    out["redundant_together"] = together;
    out["dispatches"] = trace.dispatches.size();
    out["accesses"] = accesses;
    out["pairs"] = pairs;
    out["command_buffers"] = trace.command_buffers.size();
    return out;
}

// Producers are stated from the trace itself, which must have no finding but REDUNDANT.
py::dict run_mutate(const py::iterable& events) {
    audit::Trace trace = Reader().read(events);
    audit::MutationReport report;
    {
        const py::gil_scoped_release unlocked;
        audit::state_producers(trace);
        report = audit::run_mutants(std::move(trace));
    }
    py::dict kinds;
    for (size_t k = 0; k < report.kinds.size(); ++k) {
        const audit::MutationReport::Count& count = report.kinds[k];
        kinds[audit::name(static_cast<audit::MutantKind>(k))] =
            py::dict(py::arg("total") = count.total, py::arg("reported") = count.reported,
                     py::arg("unsound") = count.unsound);
    }
    py::dict out;
    out["total"] = report.total;
    out["reported"] = report.reported;
    out["missed"] = report.missed;
    out["extra"] = report.extra;
    out["silent_redundant"] = report.silent_redundant;
    out["silent_is_redundant"] = report.silent_is_redundant;
    out["kinds"] = kinds;
    out["together"] = report.together;
    out["together_sound"] = report.together_sound;
    out["disagreements"] = report.disagreements;
    return out;
}

#if !defined(__APPLE__)
// A command buffer of a trace as a recording with its order: encoders, barriers, and which buffers
// each dispatch binds.
void record_again(const audit::Trace& trace, const audit::CommandBuffer& from,
                  const std::vector<stream::BufferRef>& buffers, stream::CommandBuffer& out) {
    for (const audit::Encoder& encoder : from.encoders) {
        out.encoders.push_back({encoder.concurrent, static_cast<uint32_t>(out.commands.size()),
                                static_cast<uint32_t>(encoder.commands.size())});
        for (const audit::Command& command : encoder.commands) {
            if (command.kind == audit::Command::Kind::dispatch) {
                stream::Dispatch dispatch;
                dispatch.first_binding = static_cast<uint32_t>(out.bindings.size());
                for (const audit::Use& use : trace.dispatches[command.index].uses) {
                    out.bindings.push_back({++dispatch.binding_count, buffers[use.object], 0});
                }
                out.commands.push_back({stream::Command::Kind::dispatch,
                                        static_cast<uint32_t>(out.dispatches.size())});
                out.dispatches.push_back(dispatch);
                continue;
            }
            const audit::Barrier& barrier = trace.barriers[command.index];
            out.commands.push_back(
                {stream::Command::Kind::barrier, static_cast<uint32_t>(out.barriers.size())});
            out.barriers.push_back({barrier.broad, static_cast<uint32_t>(out.resources.size()),
                                    static_cast<uint32_t>(barrier.objects.size()), 0});
            for (const uint32_t object : barrier.objects) out.resources.push_back(buffers[object]);
        }
    }
}
#endif

// The edges that a graph of the dispatches needs: by the auditor, and as the cuda device reads them
// off the same encoders and barriers (0 on a Mac, which has no such device).
py::dict order_edges(const py::iterable& events) {
    const audit::Trace trace = Reader().read(events);
    uint64_t cuda = 0;
#if !defined(__APPLE__)
    std::vector<stream::BufferRef> buffers;
    for (size_t i = 0; i < trace.objects.size(); ++i) {
        buffers.push_back(std::make_shared<stream::Buffer>());
    }
    for (const audit::CommandBuffer& commands : trace.command_buffers) {
        stream::CommandBuffer recording;
        record_again(trace, commands, buffers, recording);
        cuda += device::cuda::order_of(recording).edges();
    }
#endif
    return py::dict(py::arg("audit") = audit::order_edges(trace), py::arg("cuda") = cuda);
}

py::list record(Session& session, uint64_t position, uint32_t tokens, bool chunk, bool greedy) {
    const auto kind = chunk    ? Engine::Recorded::chunk
                      : greedy ? Engine::Recorded::greedy
                               : Engine::Recorded::lane;
    const audit::Trace trace =
        session.ask([&](Engine& e) { return e.record(position, tokens, kind); });
    return events_of(trace);
}

// Where the source states barriers, and why: for the docs page.
py::dict barrier_sites() {
    py::list closures;
    for (const StageInfo& stage : kStages) {
        closures.append(py::dict(py::arg("closure") = stage.name, py::arg("why") = stage.barrier));
    }
    py::list sites;
    for (const BarrierSite& site : kBarrierSites) {
        sites.append(py::dict(py::arg("site") = site.name, py::arg("resources") = site.resources,
                              py::arg("hazard") = site.hazard, py::arg("why") = site.why));
    }
    return py::dict(py::arg("closures") = closures, py::arg("sites") = sites);
}

}  // namespace

void bind_audit(py::module_& module) {
    module.def("audit", &run_audit, py::arg("events"));
    module.def("mutate", &run_mutate, py::arg("events"));
    module.def("order_edges", &order_edges, py::arg("events"));
    module.def("barrier_sites", &barrier_sites);
    const py::object engine = module.attr("Engine");
    engine.attr("record") =
        py::cpp_function(&record, py::name("record"), py::is_method(engine), py::arg("position"),
                         py::arg("tokens"), py::arg("chunk"), py::arg("greedy"));
}

}  // namespace muser::python
