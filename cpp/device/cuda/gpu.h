// One GPU: its context, its memory and the checked driver calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/cuda/driver_api.h"

namespace muser::device::cuda {

// DeviceError (or DeviceMemoryError) with the driver's words, unless `result` is success.
void check(CUresult result, const char* what);

class Gpu {
  public:
    // ConfigError for an index that there is no GPU for; DeviceError.
    explicit Gpu(int index);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    // Makes this GPU's context the calling thread's. Cheap; every entry into the device does it.
    void use() const { check(api->context_set(context_), "cuCtxSetCurrent"); }

    const DriverApi* api;
    std::string name;
    int index = 0, count = 0;
    int major = 0, minor = 0;
    int multiprocessors = 0;
    int shared_bytes = 0;  // of one block, at most
    uint64_t memory_bytes = 0;

    // DeviceMemoryError with the bytes asked for and the bytes free.
    CUdeviceptr allocate(uint64_t bytes) const;
    void free(CUdeviceptr address) const noexcept;

  private:
    CUdevice device_ = 0;
    CUcontext context_ = nullptr;
};
using GpuRef = std::shared_ptr<const Gpu>;

// Device memory that frees itself.
class DeviceMemory {
  public:
    DeviceMemory(GpuRef gpu, uint64_t bytes)
        : gpu_(std::move(gpu)), address_(gpu_->allocate(bytes)) {}
    ~DeviceMemory() { gpu_->free(address_); }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    CUdeviceptr address() const { return address_; }

  private:
    GpuRef gpu_;
    CUdeviceptr address_;
};

}  // namespace muser::device::cuda
