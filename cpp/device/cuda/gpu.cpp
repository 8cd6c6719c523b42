#include "device/cuda/gpu.h"

#include "errors.h"

namespace muser::device::cuda {

void check(CUresult result, const char* what) {
    if (result == kSuccess) return;
    const std::string text = error_text(result);
    const Facts facts{
        {"device", "cuda"}, {"call", what}, {"code", std::to_string(result)}, {"text", text}};
    if (result == kOutOfMemory) throw DeviceMemoryError(std::string(what) + ": " + text, facts);
    throw DeviceError("the CUDA driver refused " + std::string(what) + ": " + text, facts);
}

Gpu::Gpu(int gpu_index) : api(&driver()), index(gpu_index) {
    check(api->device_count(&count), "cuDeviceGetCount");
    if (count == 0) throw DeviceError("the NVIDIA driver finds no GPU", {{"device", "cuda"}});
    if (index < 0 || index >= count) {
        throw ConfigError("there is no GPU " + std::to_string(index) + "; this machine has " +
                              std::to_string(count),
                          {{"setting", "gpu"},
                           {"found", std::to_string(index)},
                           {"expected", "0 ... " + std::to_string(count - 1)}});
    }
    check(api->device_get(&device_, index), "cuDeviceGet");
    char text[256] = {};
    check(api->device_name(text, sizeof text - 1, device_), "cuDeviceGetName");
    name = text;
    const auto attribute = [&](int which) {
        int value = 0;
        check(api->device_attribute(&value, which, device_), "cuDeviceGetAttribute");
        return value;
    };
    major = attribute(kMajor);
    minor = attribute(kMinor);
    multiprocessors = attribute(kMultiprocessors);
    shared_bytes = attribute(kSharedMemoryPerBlockOptin);
    size_t bytes = 0;
    check(api->device_memory(&bytes, device_), "cuDeviceTotalMem");
    memory_bytes = bytes;
    if (major < 8) {
        throw DeviceError(name + " is too old: compute capability " + std::to_string(major) + "." +
                              std::to_string(minor) + ", 8.0 or newer is needed",
                          {{"device", "cuda"},
                           {"found", std::to_string(major) + "." + std::to_string(minor)},
                           {"expected", "8.0"}});
    }
    check(api->context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Gpu::~Gpu() { api->context_release(device_); }

CUdeviceptr Gpu::allocate(uint64_t bytes) const {
    use();
    CUdeviceptr address = 0;
    const CUresult result = api->memory_allocate(&address, bytes);
    if (result == kOutOfMemory) {
        size_t free_bytes = 0;
        size_t total = 0;
        api->memory_info(&free_bytes, &total);
        throw DeviceMemoryError("the GPU has no room for " + std::to_string(bytes) + " bytes; " +
                                    std::to_string(free_bytes) + " of " + std::to_string(total) +
                                    " are free",
                                {{"device", "cuda"},
                                 {"bytes", std::to_string(bytes)},
                                 {"free", std::to_string(free_bytes)},
                                 {"total", std::to_string(total)}});
    }
    check(result, "cuMemAlloc");
    return address;
}

void Gpu::free(CUdeviceptr address) const noexcept {
    if (api->context_set(context_) == kSuccess) api->memory_free(address);
}

}  // namespace muser::device::cuda
