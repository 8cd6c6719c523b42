// The `cuda` device: one NVIDIA GPU through the driver API, kernels through NVRTC.
#include <atomic>
#include <map>
#include <mutex>

#include "device/cuda/kernels.h"
#include "device/cuda/layout.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/runner.h"
#include "device/cuda/transfer.h"
#include "device/registry.h"
#include "errors.h"

namespace muser::device {
namespace cuda {
namespace {

uint64_t next_id() {
    static std::atomic<uint64_t> id{0};
    return ++id;
}

class CudaDevice : public Device {
  public:
    explicit CudaDevice(const Options& options)
        : gpu_(std::make_shared<Gpu>(options.gpu)), cache_dir_(options.cache_dir) {}

    std::string_view name() const override { return "cuda"; }
    std::string isa() const override {
        return "sm_" + std::to_string(gpu_->major) + std::to_string(gpu_->minor);
    }
    int threads() const override { return 0; }
    std::string description() const override {
        const int version = gpu_->api->version;
        return gpu_->name + " (GPU " + std::to_string(gpu_->index) + " of " +
               std::to_string(gpu_->count) + "), " + isa() + ", " +
               std::to_string(gpu_->memory_bytes >> 30) + " GiB, driver for CUDA " +
               std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    }

    std::shared_ptr<stream::Buffer> allocate(uint64_t bytes, MemoryUse use) override {
        auto buffer = buffer_of(bytes);
        if (use == MemoryUse::shared) parts().transfer.zero(buffer->device_address, bytes);
        return buffer;
    }

    std::shared_ptr<stream::Buffer> wrap(const void* bytes, uint64_t length) override {
        auto buffer = buffer_of(length);
        parts().transfer.write(buffer->device_address, bytes, length);
        return buffer;
    }

    stream::KernelRef kernel(std::string_view kernel_name, std::string_view source) override {
        std::lock_guard lock(mutex_);
        if (!library_) {
            if (source.empty()) return nullptr;
            gpu_->use();
            CompileRequest request;
            request.source = source;
            request.architecture = isa();
            request.cache_dir = cache_dir_;
            request.driver_version = gpu_->api->version;
            library_ = std::make_shared<KernelLibrary>(gpu_, compile(request));
        }
        // One object per name: recordings are told apart by it.
        const auto found = kernels_.find(kernel_name);
        if (found != kernels_.end()) return found->second;
        auto kernel = library_->find(kernel_name);
        kernels_.emplace(kernel_name, kernel);
        return kernel;
    }

    WeightLayout layout(const WeightShape& shape) const override { return weight_layout(shape); }

    void repack(const WeightShape& shape, const WeightLayout&, const void* rows,
                stream::Buffer& destination, uint64_t offset) override {
        parts().transfer.repack(library(), shape, rows, destination.device_address + offset);
    }

    void submit(stream::CommandBufferRef commands) override {
        std::shared_ptr<const KernelLibrary> current;
        {
            std::lock_guard lock(mutex_);
            current = library_;
        }
        parts().runner.submit(std::move(current), std::move(commands));
    }

    void read(const stream::Buffer& from, uint64_t offset, void* to, uint64_t bytes) override {
        parts().transfer.read(from.device_address + offset, to, bytes);
    }
    void write(stream::Buffer& to, uint64_t offset, const void* from, uint64_t bytes) override {
        parts().transfer.write(to.device_address + offset, from, bytes);
    }

  private:
    // Made on first use: listing devices needs neither a stream nor pinned memory.
    struct Parts {
        explicit Parts(const GpuRef& gpu) : runner(gpu), transfer(gpu, runner.stream()) {}
        Runner runner;
        Transfer transfer;
    };
    Parts& parts() {
        std::call_once(made_, [&] { parts_ = std::make_unique<Parts>(gpu_); });
        return *parts_;
    }

    const KernelLibrary& library() {
        std::lock_guard lock(mutex_);
        if (!library_) throw DeviceError("no kernels have been compiled", {{"device", "cuda"}});
        return *library_;
    }

    std::shared_ptr<stream::Buffer> buffer_of(uint64_t bytes) {
        auto memory = std::make_shared<DeviceMemory>(gpu_, bytes == 0 ? 16 : bytes);
        auto buffer = std::make_shared<stream::Buffer>();
        buffer->id = next_id();
        buffer->allocation = next_id();
        buffer->length = bytes;
        buffer->device_address = memory->address();
        buffer->storage = std::move(memory);
        return buffer;
    }

    GpuRef gpu_;
    std::string cache_dir_;
    std::mutex mutex_;
    std::shared_ptr<const KernelLibrary> library_;
    std::map<std::string, std::shared_ptr<const CudaKernel>, std::less<>> kernels_;
    std::once_flag made_;
    std::unique_ptr<Parts> parts_;  // last: nothing may be in flight when the rest goes
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Device> make_cuda_device(const Options& options) {
    return std::make_unique<cuda::CudaDevice>(options);
}

}  // namespace muser::device
