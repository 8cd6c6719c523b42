// The kernel catalogue, and what a traced step shows.
#include <pybind11/stl.h>

#include "cpp/python/session.h"
#include "metal/kernels/launch_shapes.h"
#include "metal/recording.h"

namespace muser::python {
namespace {

const char* unit_name(kernels::Unit unit) {
    switch (unit) {
        case kernels::Unit::whole:
            return "whole";
        case kernels::Unit::rows:
            return "rows";
        case kernels::Unit::elements:
            return "elements";
        case kernels::Unit::pairs:
            return "pairs";
        case kernels::Unit::heads:
            return "heads";
        case kernels::Unit::kv_rows:
            return "KV rows";
        case kernels::Unit::chunks:
            return "chunks";
        case kernels::Unit::probes:
            return "probe rows";
    }
    return "unknown";
}

py::list kernel_list() {
    py::list out;
    for (const kernels::KernelShape& shape : kernels::kKernelShapes) {
        py::dict row;
        row["name"] = std::string(shape.name);
        row["threads"] = shape.threads;
        row["per_group"] = shape.per_group;
        row["unit"] = unit_name(shape.unit);
        row["args"] = std::string(shape.args);
        py::list buffers, accesses;
        for (const std::string_view name : argument_names(shape.name)) {
            buffers.append(std::string(name));
        }
        for (const std::string_view access : argument_accesses(shape.name)) {
            accesses.append(std::string(access));
        }
        row["buffers"] = buffers;
        row["accesses"] = accesses;
        out.append(row);
    }
    return out;
}

py::dict trace(Session& session, const std::vector<uint32_t>& tokens, bool greedy) {
    const size_t vocab = session.ask([](Engine& e) { return e.geometry().vocab; });
    py::array_t<float> row(static_cast<py::ssize_t>(vocab));
    float* logits = row.mutable_data();
    const StepTrace trace =
        session.exclusively([&](Engine& e) { return e.trace(tokens, logits, greedy); });
    py::list findings;
    for (const TraceFinding& finding : trace.findings) {
        py::dict entry;
        entry["kind"] = finding.kind;
        entry["kernel"] = finding.kernel;
        entry["closure"] = finding.closure;
        entry["argument"] = finding.argument;
        entry["text"] = finding.text;
        findings.append(entry);
    }
    py::list dispatches;
    for (const TracedDispatch& dispatch : trace.dispatches) {
        py::dict arguments;
        for (const TracedArgument& argument : dispatch.arguments) {
            arguments[py::str(argument.name)] =
                py::make_tuple(argument.read_bytes, argument.written_bytes);
        }
        py::dict entry;
        entry["closure"] = dispatch.closure;
        entry["kernel"] = dispatch.kernel;
        entry["arguments"] = arguments;
        dispatches.append(entry);
    }
    py::dict out;
    out["loads"] = trace.loads;
    out["stores"] = trace.stores;
    out["suppressed"] = trace.suppressed;
    out["findings"] = findings;
    out["dispatches"] = dispatches;
    out["logits"] = row;
    return out;
}

}  // namespace

void bind_kernels(py::module_& module) {
    module.def("kernels", &kernel_list);
    module.def("trace", &trace, py::arg("engine"), py::arg("tokens"), py::arg("greedy") = false);
}

}  // namespace muser::python
