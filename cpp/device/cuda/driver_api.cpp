#include "device/cuda/driver_api.h"

#include <dlfcn.h>

#include <mutex>
#include <optional>

#include "errors.h"

namespace muser::device::cuda {
namespace {

constexpr int kOldestDriver = 12000;
constexpr const char* kLibraries[] = {"libcuda.so.1", "libcuda.so"};

struct Opened {
    DriverApi api;
    std::string problem;  // empty: usable
    Facts facts;
};

Opened open_driver() {
    Opened out;
    out.facts = {{"device", "cuda"}};
    void* library = nullptr;
    for (const char* name : kLibraries) {
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library != nullptr) break;
    }
    if (library == nullptr) {
        out.problem = "there is no NVIDIA driver on this machine (libcuda.so.1 was not found)";
        out.facts.emplace_back("library", "libcuda.so.1");
        return out;
    }
    // The first missing symbol tells a driver that is too old.
    const char* missing = nullptr;
    const auto find = [&](auto& pointer, const char* symbol) {
        void* found = dlsym(library, symbol);
        if (found == nullptr && missing == nullptr) missing = symbol;
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(found);
    };
#define MUSER_CUDA_FIND(member, symbol, parameters) find(out.api.member, #symbol);
    MUSER_CUDA_CALLS(MUSER_CUDA_FIND)
#undef MUSER_CUDA_FIND
    if (out.api.driver_version != nullptr) out.api.driver_version(&out.api.version);
    if (missing != nullptr || out.api.version < kOldestDriver) {
        out.problem = "the NVIDIA driver is too old: it speaks CUDA " +
                      std::to_string(out.api.version / 1000) + "." +
                      std::to_string(out.api.version % 1000 / 10) + ", 12.0 or newer is needed";
        out.facts.emplace_back("found", std::to_string(out.api.version));
        out.facts.emplace_back("expected", std::to_string(kOldestDriver));
        if (missing != nullptr) out.facts.emplace_back("symbol", missing);
        return out;
    }
    void* edges = dlsym(library, "cuGraphAddDependencies_v2");
    out.api.graph_add_edges = reinterpret_cast<decltype(out.api.graph_add_edges)>(edges);
    edges = dlsym(library, "cuGraphGetEdges_v2");
    out.api.graph_edges = reinterpret_cast<decltype(out.api.graph_edges)>(edges);
    const CUresult started = out.api.init(0);
    if (started != kSuccess) {
        const char* text = nullptr;
        out.api.error_string(started, &text);
        out.problem = std::string(started == kNoDevice ? "the NVIDIA driver finds no GPU"
                                                       : "the NVIDIA driver does not start") +
                      " (" + (text != nullptr ? text : "no reason given") + ")";
        out.facts.emplace_back("code", std::to_string(started));
    }
    return out;
}

const Opened& opened() {
    static const Opened kOpened = open_driver();
    return kOpened;
}

}  // namespace

const DriverApi& driver() {
    const Opened& found = opened();
    if (!found.problem.empty()) throw DeviceError(found.problem, found.facts);
    return found.api;
}

std::string error_text(CUresult error) {
    const DriverApi& api = opened().api;
    const char* name = nullptr;
    const char* text = nullptr;
    if (api.error_name == nullptr || api.error_name(error, &name) != kSuccess) {
        return "error " + std::to_string(error);
    }
    api.error_string(error, &text);
    return std::string(name) + ": " + (text != nullptr ? text : "");
}

}  // namespace muser::device::cuda
