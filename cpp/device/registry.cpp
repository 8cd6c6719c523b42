#include "device/registry.h"

#include "errors.h"

namespace muser::device {
namespace {

struct Entry {
    std::string_view name;
    std::unique_ptr<Device> (*make)(const Options&);
};

constexpr Entry kDevices[] = {
    {"cpu", make_cpu_device},
#if defined(MUSER_HAVE_CUDA)
    {"cuda", make_cuda_device},
#endif
#if defined(MUSER_HAVE_EMULATOR)
    {"emulator", make_emulator_device},
#endif
};

}  // namespace

std::unique_ptr<Device> make_device(std::string_view name, const Options& options) {
    std::string known;
    for (const Entry& entry : kDevices) {
        if (entry.name == name) return entry.make(options);
        if (!known.empty()) known += ", ";
        known += entry.name;
    }
    throw ConfigError(
        "there is no device '" + std::string(name) + "' in this build; it has: " + known,
        {{"setting", "device"}, {"found", std::string(name)}, {"expected", known}});
}

std::vector<std::string> device_names() {
    std::vector<std::string> names;
    for (const Entry& entry : kDevices) names.emplace_back(entry.name);
    return names;
}

}  // namespace muser::device
