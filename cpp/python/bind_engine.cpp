// Config and Engine.
#include <pybind11/stl.h>

#include <cstring>
#include <optional>

#include "cpp/python/session.h"

namespace muser::python {
namespace {

using Row = py::array_t<float, py::array::c_style>;

std::string found_shape(const py::array& array) {
    return py::str(py::make_tuple(array.dtype(), array.attr("shape")));
}

// The caller's array, checked, or a fresh one.
Row logits_row(const std::optional<py::array>& out, size_t vocab) {
    if (!out) return Row(static_cast<py::ssize_t>(vocab));
    const bool fits = py::isinstance<py::array_t<float>>(*out) && out->ndim() == 1 &&
                      out->shape(0) == static_cast<py::ssize_t>(vocab) &&
                      (out->flags() & py::array::c_style) != 0 && out->writeable();
    if (!fits) {
        throw ConfigError(
            "out is a writable contiguous float32 array of " + std::to_string(vocab) + ", not " +
                found_shape(*out),
            {{"found", found_shape(*out)}, {"expected", "float32[" + std::to_string(vocab) + "]"}});
    }
    return py::reinterpret_borrow<Row>(*out);
}

py::array_t<float> to_array(const std::vector<float>& values) {
    return py::array_t<float>(static_cast<py::ssize_t>(values.size()), values.data());
}

py::tuple decode_token(Session& session, uint32_t token, const std::optional<py::array>& out,
                       const std::vector<std::string>& capture) {
    const size_t vocab = session.ask([](Engine& e) { return e.geometry().vocab; });
    Row row = logits_row(out, vocab);
    float* logits = row.mutable_data();
    std::vector<Capture> captured;
    session.exclusively(
        [&](Engine& e) { e.decode(token, logits, capture, captured, signal_pending); });
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    py::dict stages;
    for (const Capture& stage : captured) stages[py::str(stage.name)] = to_array(stage.values);
    return py::make_tuple(std::move(row), stages);
}

// In chunks; a signal stops it after a chunk, with the tokens so far part of the state.
Row prefill(Session& session, const std::vector<uint32_t>& tokens, bool all_rows) {
    const size_t vocab = session.ask([](Engine& e) { return e.geometry().vocab; });
    if (tokens.empty()) throw ConfigError("prefill needs at least one token", {{"found", "0"}});
    const size_t rows = all_rows ? tokens.size() : 1;
    Row out = all_rows ? Row({rows, vocab}) : Row(static_cast<py::ssize_t>(vocab));
    float* logits = out.mutable_data();
    session.exclusively([&](Engine& e) {
        e.prefill(tokens.data(), tokens.size(), all_rows, logits, signal_pending);
    });
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    return out;
}

Row teacher_forced(Session& session, const std::vector<uint32_t>& tokens) {
    const size_t vocab = session.ask([](Engine& e) { return e.geometry().vocab; });
    Row out({tokens.size(), vocab});
    float* logits = out.mutable_data();
    session.exclusively(
        [&](Engine& e) { e.teacher_forced(tokens.data(), tokens.size(), logits, signal_pending); });
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    return out;
}

// The ids, and the rows or None, both as long as the steps that are kept.
py::tuple greedy(Session& session, uint32_t token, size_t count, bool rows,
                 const std::vector<uint32_t>& stop) {
    const size_t vocab = session.ask([](Engine& e) { return e.geometry().vocab; });
    py::array_t<uint32_t> ids(static_cast<py::ssize_t>(count));
    Row logits({rows ? count : 0, vocab});
    uint32_t* chosen = ids.mutable_data();
    float* to = rows ? logits.mutable_data() : nullptr;
    const size_t kept = session.exclusively(
        [&](Engine& e) { return e.greedy(token, count, stop, chosen, to, signal_pending); });
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    const py::slice first(0, static_cast<py::ssize_t>(kept), 1);
    return py::make_tuple(ids[first], rows ? py::object(logits[first]) : py::none());
}

py::array kv(Session& session, uint32_t layer, const std::string& plane, uint64_t first,
             uint64_t count) {
    const KvRows rows = session.ask(
        [&](Engine& e) { return e.kv(layer, plane.size() == 1 ? plane[0] : '?', first, count); });
    const std::vector<py::ssize_t> shape{static_cast<py::ssize_t>(rows.rows),
                                         static_cast<py::ssize_t>(rows.kv_heads),
                                         static_cast<py::ssize_t>(rows.head_dim)};
    py::array out(py::dtype(rows.element == 2 ? "float16" : "float32"), shape);
    std::memcpy(out.mutable_data(), rows.bytes.data(), rows.bytes.size());
    return out;
}

void set_kv(Session& session, uint32_t layer, const std::string& plane, uint64_t position,
            const py::array& row) {
    const py::array flat = py::array::ensure(row, py::array::c_style);
    session.ask([&](Engine& e) {
        e.set_kv(layer, plane.size() == 1 ? plane[0] : '?', position,
                 static_cast<const std::byte*>(flat.data()), static_cast<size_t>(flat.nbytes()));
    });
}

py::bytes to_bytes(const std::vector<std::byte>& bytes) {
    return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::vector<std::byte> from_bytes(const py::handle& object) {
    const auto view = py::cast<std::string_view>(object);
    const auto* first = reinterpret_cast<const std::byte*>(view.data());
    return {first, first + view.size()};
}

py::dict state(Session& session) {
    const SequenceState state = session.exclusively([](Engine& e) { return e.state(); });
    py::list layers;
    for (const LayerState& layer : state.layers) {
        layers.append(py::make_tuple(to_bytes(layer.k), to_bytes(layer.v),
                                     to_bytes(layer.journal_k), to_bytes(layer.journal_v)));
    }
    py::dict out;
    out["position"] = state.position;
    out["journal"] = state.journal;
    out["element"] = state.element;
    out["layers"] = layers;
    return out;
}

void set_state(Session& session, const py::dict& from) {
    SequenceState state;
    state.position = py::cast<uint64_t>(from["position"]);
    state.journal = py::cast<uint64_t>(from["journal"]);
    state.element = py::cast<uint32_t>(from["element"]);
    for (const py::handle layer : from["layers"]) {
        const auto parts = py::cast<py::sequence>(layer);
        state.layers.push_back({from_bytes(parts[0]), from_bytes(parts[1]), from_bytes(parts[2]),
                                from_bytes(parts[3])});
    }
    session.exclusively([&](Engine& e) { e.set_state(state); });
}

py::dict plan(Session& session, uint64_t position) {
    const Plan plan = session.ask([&](Engine& e) { return e.plan(position); });
    py::dict out;
    out["schedule"] = plan.schedule;
    out["position"] = plan.position;
    out["closures"] = plan.closures;
    py::list dispatches;
    for (const PlanDispatch& dispatch : plan.dispatches) {
        py::dict row;
        row["closure"] = dispatch.closure;
        row["kernel"] = dispatch.kernel;
        row["groups"] = py::make_tuple(dispatch.groups[0], dispatch.groups[1], dispatch.groups[2]);
        row["threads"] = dispatch.threads;
        dispatches.append(row);
    }
    out["dispatches"] = dispatches;
    py::dict barriers;
    barriers["broad"] = plan.broad;
    barriers["targeted"] = plan.targeted;
    out["barriers"] = barriers;
    py::list sites;
    for (const PlanBarrier& barrier : plan.barriers) {
        py::dict row;
        row["before_dispatch"] = barrier.before_dispatch;
        row["site"] = barrier.site;
        row["hazard"] = barrier.hazard;
        row["resources"] = barrier.resources;
        sites.append(row);
    }
    out["barrier_sites"] = sites;
    const py::object digest =
        py::module_::import("hashlib").attr("sha256")(py::bytes(plan.canonical));
    out["hash"] = digest.attr("hexdigest")();
    return out;
}

py::dict profile(Session& session, uint32_t token, bool phase,
                 const std::map<std::string, int>& repeat) {
    const size_t vocab = session.ask([](Engine& e) { return e.geometry().vocab; });
    Row row = logits_row(std::nullopt, vocab);
    float* logits = row.mutable_data();
    const Profile profile = session.exclusively(
        [&](Engine& e) { return e.profile(token, logits, phase, repeat, signal_pending); });
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    py::list samples;
    for (const ClosureTime& sample : profile.samples) {
        py::dict entry;
        entry["closure"] = sample.closure;
        entry["start"] = sample.known ? py::object(py::float_(sample.start_seconds)) : py::none();
        entry["end"] = sample.known ? py::object(py::float_(sample.end_seconds)) : py::none();
        samples.append(entry);
    }
    py::dict out;
    out["schedule"] = profile.schedule;
    out["position"] = profile.position;
    out["labels"] = profile.labels;
    out["samples"] = samples;
    out["dispatches"] = profile.dispatches;
    out["barriers"] =
        py::dict(py::arg("broad") = profile.broad, py::arg("targeted") = profile.targeted);
    out["command_buffers"] = profile.command_buffers;
    out["device_seconds"] = profile.device_seconds;
    out["encode_seconds"] = profile.encode_seconds;
    out["submit_seconds"] = profile.submit_seconds;
    out["wait_seconds"] = profile.wait_seconds;
    out["readback_seconds"] = profile.readback_seconds;
    out["wall_seconds"] = profile.wall_seconds;
    out["spare_bytes"] = profile.spare_bytes;
    out["logits"] = row;
    return out;
}

py::dict device(Session& session) {
    const DeviceDescription found = session.ask([](Engine& e) { return e.device(); });
    py::dict out;
    out["name"] = found.name;
    out["description"] = found.description;
    out["isa"] = found.isa;
    out["threads"] = found.threads;
    out["weights"] = found.weight_bytes;
    return out;
}

void bind_config(py::module_& module) {
    py::class_<EngineConfig>(module, "Config")
        .def(py::init<>())
        .def_readwrite("device", &EngineConfig::device)
        .def_readwrite("schedule", &EngineConfig::schedule)
        .def_readwrite("context", &EngineConfig::context)
        .def_readwrite("kv_dtype", &EngineConfig::kv_dtype)
        .def_readwrite("threads", &EngineConfig::threads)
        .def_readwrite("isa", &EngineConfig::isa)
        .def_readwrite("barriers", &EngineConfig::barriers)
        .def_readwrite("wait_seconds", &EngineConfig::wait_seconds)
        .def_readwrite("allow_inexact", &EngineConfig::allow_inexact)
        .def_readwrite("serial_dispatch", &EngineConfig::serial_dispatch)
        .def_readwrite("ffn_gate_up", &EngineConfig::ffn_gate_up)
        .def_readwrite("untracked", &EngineConfig::untracked)
        .def_readwrite("rollback_max", &EngineConfig::rollback_max)
        .def_readwrite("prefill_rows", &EngineConfig::prefill_rows)
        .def_readwrite("gpu", &EngineConfig::gpu)
        .def_readwrite("seed", &EngineConfig::seed)
        .def_readwrite("kernel_dir", &EngineConfig::kernel_dir)
        .def_readwrite("cache_dir", &EngineConfig::cache_dir)
        .def_readwrite("faults", &EngineConfig::faults)
        .def_property(
            "rope_inverse", [](const EngineConfig& config) { return config.rope_inverse; },
            [](EngineConfig& config, const std::vector<double>& values) {
                config.rope_inverse = values;
            });
}

}  // namespace

void bind_engine(py::module_& module) {
    bind_config(module);
    py::class_<Session>(module, "Engine")
        .def(py::init<const std::string&, const EngineConfig&>(), py::arg("path"),
             py::arg("config"))
        .def("decode_token", &decode_token, py::arg("token"), py::arg("out").none(true),
             py::arg("capture"))
        .def("prefill", &prefill, py::arg("tokens"), py::arg("all_rows"))
        .def("teacher_forced", &teacher_forced, py::arg("tokens"))
        .def("greedy", &greedy, py::arg("token"), py::arg("count"), py::arg("rows"),
             py::arg("stop"))
        .def("reset", [](Session& session) { session.ask([](Engine& e) { e.reset(); }); })
        .def("close", &Session::close)
        .def(
            "rollback",
            [](Session& session, uint64_t tokens) {
                session.ask([&](Engine& e) { e.rollback(tokens); });
            },
            py::arg("tokens"))
        .def("kv", &kv, py::arg("layer"), py::arg("plane"), py::arg("first"), py::arg("count"))
        .def("set_kv", &set_kv, py::arg("layer"), py::arg("plane"), py::arg("position"),
             py::arg("row"))
        .def("state", &state)
        .def("set_state", &set_state, py::arg("state"))
        .def("profile", &profile, py::arg("token"), py::arg("phase"), py::arg("repeat"))
        .def("plan", &plan, py::arg("position"))
        .def_property_readonly(
            "position",
            [](Session& session) { return session.ask([](Engine& e) { return e.position(); }); })
        .def_property_readonly("closed", &Session::closed)
        .def_property_readonly("device", &device);
}

}  // namespace muser::python
