// Copies between host and GPU through pinned memory, and repacking at load.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "device/cuda/gpu.h"
#include "device/device.h"

namespace muser::device::cuda {

class KernelLibrary;

class Transfer {
  public:
    // `work` is the stream that command buffers run on: copies are ordered with them.
    Transfer(GpuRef gpu, CUstream work);
    ~Transfer();
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

    void read(CUdeviceptr from, void* to, uint64_t bytes);
    void write(CUdeviceptr to, const void* from, uint64_t bytes);
    void zero(CUdeviceptr at, uint64_t bytes);
    // Rows as they lie in the file into groups of 32. Returns when the rows have been read; what is
    // submitted later runs after the rest.
    void repack(const KernelLibrary& library, const WeightShape& shape, const void* rows,
                CUdeviceptr to);

  private:
    struct Stage {
        std::byte* host = nullptr;
        CUdeviceptr device = 0;
        CUevent done = nullptr;  // the stage may be filled again
    };
    Stage& next_stage();
    void upload(const void* from, CUdeviceptr to, uint64_t bytes);
    void copy_in(std::byte* to, const void* from, uint64_t bytes);

    GpuRef gpu_;
    CUstream work_;
    std::mutex mutex_;
    std::vector<Stage> stages_;
    size_t turn_ = 0;
    std::byte* small_ = nullptr;  // ring of pinned slots for step values
    size_t small_turn_ = 0;
    std::byte* readback_ = nullptr;
};

}  // namespace muser::device::cuda
