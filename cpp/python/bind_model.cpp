// What can be told without an engine: files, schedules, devices, memory.
#include <pybind11/stl.h>

#include <bit>
#include <cstring>

#include "contract/ftz.h"
#include "contract/sampling.h"
#include "cpp/python/session.h"
#include "device/device.h"
#include "metal/schedule.h"
#include "model/model_weights.h"
#if !defined(__APPLE__)
#include "device/cpu/isa.h"
#endif

namespace muser::python {
namespace {

template <class T>
T scalar(const model::Entry& entry) {
    T value;
    std::memcpy(&value, entry.bytes.data(), sizeof value);
    return value;
}

py::object metadata_value(const model::Entry& entry) {
    using model::ValueType;
    switch (entry.type) {
        case ValueType::U8:
            return py::int_(scalar<uint8_t>(entry));
        case ValueType::I8:
            return py::int_(scalar<int8_t>(entry));
        case ValueType::U16:
            return py::int_(scalar<uint16_t>(entry));
        case ValueType::I16:
            return py::int_(scalar<int16_t>(entry));
        case ValueType::U32:
            return py::int_(scalar<uint32_t>(entry));
        case ValueType::I32:
            return py::int_(scalar<int32_t>(entry));
        case ValueType::U64:
            return py::int_(scalar<uint64_t>(entry));
        case ValueType::I64:
            return py::int_(scalar<int64_t>(entry));
        case ValueType::F32:
            return py::float_(static_cast<double>(scalar<float>(entry)));
        case ValueType::F64:
            return py::float_(scalar<double>(entry));
        case ValueType::Bool:
            return py::bool_(scalar<uint8_t>(entry) != 0);
        case ValueType::String: {
            const auto* text = reinterpret_cast<const char*>(entry.bytes.data());
            return py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
                text, static_cast<py::ssize_t>(entry.bytes.size()), "replace"));
        }
        case ValueType::Array:
            break;
    }
    return py::int_(entry.count);
}

py::dict geometry_dict(const model::Geometry& geometry) {
    py::dict out;
    out["architecture"] = geometry.architecture;
    out["layers"] = geometry.layers;
    out["hidden"] = geometry.hidden;
    out["heads"] = geometry.heads;
    out["kv_heads"] = geometry.kv_heads;
    out["head_dim"] = geometry.head_dim;
    out["ff"] = geometry.ff;
    out["vocab"] = geometry.vocab;
    out["window"] = geometry.window;
    out["context"] = geometry.context;
    out["rope_base"] = geometry.rope_base;
    out["eps"] = geometry.eps;
    out["post_eps"] = geometry.post_eps;
    out["logit_scale"] = geometry.logit_scale;
    out["softcap"] = geometry.softcap;
    out["is_local"] = geometry.is_local;
    return out;
}

py::dict inspect(const std::string& path) {
    const model::Model model = model::Model::open(path);
    py::dict out;
    out["file_bytes"] = model.bytes().size();
    out["header_bytes"] = model.census().header_bytes;
    out["alignment"] = model.header().alignment();
    out["version"] = 3;
    out["geometry"] = geometry_dict(model.geometry());
    py::list tensors;
    for (const model::Weight* weight : model.weights()) {
        py::dict tensor;
        tensor["name"] = std::string(weight->name);
        tensor["type"] = model::type_name(weight->type);
        tensor["shape"] = weight->rows == 1
                              ? py::object(py::make_tuple(weight->cols))
                              : py::object(py::make_tuple(weight->rows, weight->cols));
        tensor["offset"] = weight->file_offset;
        tensor["bytes"] = weight->bytes;
        tensors.append(tensor);
    }
    out["tensors"] = tensors;
    out["bytes_per_token"] = model.census().bytes_per_token;
    out["warnings"] = model.warnings();
    py::dict metadata;
    for (const model::Entry& entry : model.header().entries()) {
        const std::string key(entry.key);
        metadata[py::str(entry.type == model::ValueType::Array ? key + "[]" : key)] =
            metadata_value(entry);
    }
    out["metadata"] = metadata;
    return out;
}

py::list bytes_list(const model::StringArray& strings) {
    py::list out;
    for (const std::string_view text : strings) out.append(py::bytes(text.data(), text.size()));
    return out;
}

py::dict tokenizer(const std::string& path) {
    const model::Model model = model::Model::open(path);
    const model::TokenizerKeys& keys = model.tokenizer();
    py::dict out;
    out["model"] = std::string(keys.model);
    out["pre"] = std::string(keys.pre);
    out["tokens"] = bytes_list(keys.tokens);
    py::array_t<int32_t> types(static_cast<py::ssize_t>(keys.token_types.size() / 4));
    std::memcpy(types.mutable_data(), keys.token_types.data(), keys.token_types.size());
    out["token_types"] = types;
    out["merges"] = bytes_list(keys.merges);
    out["chat_template"] = keys.chat_template.empty()
                               ? py::object(py::none())
                               : py::object(py::str(std::string(keys.chat_template)));
    py::dict ids;
    const auto id = [&](const char* name, const auto& value) {
        if (value) ids[name] = *value;
    };
    id("bos_token_id", keys.bos);
    id("eos_token_id", keys.eos);
    id("eot_token_id", keys.eot);
    id("eom_token_id", keys.eom);
    id("padding_token_id", keys.pad);
    id("unknown_token_id", keys.unknown);
    id("add_bos_token", keys.add_bos);
    id("add_eos_token", keys.add_eos);
    id("add_sep_token", keys.add_sep);
    out["ids"] = ids;
    return out;
}

py::list schedule_list() {
    py::list out;
    for (const Schedule& schedule : schedules()) {
        py::dict row;
        row["name"] = std::string(schedule.name);
        row["exact"] = schedule.exact;
        row["differs"] = std::string(schedule.differs);
        row["max_queries_per_kv_head"] = max_queries_per_kv_head(schedule);
        out.append(row);
    }
    return out;
}

py::list device_list() {
    py::list out;
#if defined(__APPLE__)
    py::dict row;
    row["name"] = "metal";
    row["usable"] = true;
    row["description"] = "Apple GPU";
    row["isas"] = std::vector<std::string>{"metal"};
    row["why_not"] = "";
    out.append(row);
#else
    for (const std::string& name : device::device_names()) {
        py::dict row;
        row["name"] = name;
        std::vector<std::string> isas;
        try {
            const auto device = device::make_device(name, {});
            row["usable"] = true;
            row["description"] = device->description();
            row["why_not"] = "";
            if (name == "cpu") {
                for (const auto isa : device::cpu::isas()) {
                    isas.emplace_back(device::cpu::isa_name(isa));
                }
            } else {
                isas.push_back(device->isa());
            }
        } catch (const Error& error) {
            row["usable"] = false;
            row["description"] = "";
            row["why_not"] = error.what();
        }
        row["isas"] = isas;
        out.append(row);
    }
#endif
    return out;
}

py::dict memory_dict(const std::string& path, const EngineConfig& config) {
    const Memory memory = estimate_memory(path, config);
    py::dict out;
    out["weights_mapped"] = memory.weights_mapped;
    out["weights_repacked"] = memory.weights_repacked;
    out["kv"] = memory.kv;
    out["shadow"] = memory.shadow;
    out["journal"] = memory.journal;
    out["activations"] = memory.activations;
    out["total"] = memory.total();
    return out;
}

uint32_t sample(const py::array_t<float, py::array::c_style>& logits, float temperature,
                uint32_t top_k, float top_p, uint64_t seed, uint64_t position) {
    if (logits.ndim() != 1 || logits.size() == 0) {
        throw ConfigError("logits are one row", {{"found", std::to_string(logits.ndim())}});
    }
    const contract::FlushSubnormals flush;
    return contract::sample(logits.data(), static_cast<size_t>(logits.size()),
                            {temperature, top_k, top_p, seed}, position);
}

}  // namespace

void bind_model(py::module_& module) {
    module.def("inspect", &inspect, py::arg("path"));
    module.def("tokenizer", &tokenizer, py::arg("path"));
    module.def("sample", &sample, py::arg("logits"), py::arg("temperature"), py::arg("top_k"),
               py::arg("top_p"), py::arg("seed"), py::arg("position"));
    module.def("schedules", &schedule_list);
    module.def("devices", &device_list);
    module.def("memory_estimate", &memory_dict, py::arg("path"), py::arg("config"));
}

}  // namespace muser::python
