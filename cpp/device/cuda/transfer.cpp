#include "device/cuda/transfer.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "device/cuda/kernels.h"
#include "device/cuda/layout.h"
#include "errors.h"
#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {
namespace {

constexpr uint64_t kStageBytes = 32u << 20;
constexpr size_t kStages = 3;
constexpr uint64_t kReadbackBytes = 4u << 20;
// More slots than command buffers can be in flight: one is free again when its turn comes.
constexpr uint64_t kSmallBytes = 2048;
constexpr size_t kSmallSlots = 512;
// One core does not fill the bus.
constexpr unsigned kCopyThreads = 8;
constexpr uint64_t kWorthThreads = 4u << 20;

}  // namespace

Transfer::Transfer(GpuRef gpu, CUstream work) : gpu_(std::move(gpu)), work_(work) {
    gpu_->use();
    const DriverApi& api = *gpu_->api;
    void* memory = nullptr;
    check(api.host_allocate(&memory, kSmallBytes * kSmallSlots + kReadbackBytes, 0),
          "cuMemHostAlloc");
    small_ = static_cast<std::byte*>(memory);
    readback_ = small_ + kSmallBytes * kSmallSlots;
}

Transfer::~Transfer() {
    try {
        gpu_->use();
    } catch (const Error&) {
        return;
    }
    const DriverApi& api = *gpu_->api;
    api.stream_synchronize(work_);
    for (const Stage& stage : stages_) {
        api.event_destroy(stage.done);
        api.host_free(stage.host);
        gpu_->free(stage.device);
    }
    api.host_free(small_);
}

void Transfer::read(CUdeviceptr from, void* to, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    gpu_->use();
    auto* out = static_cast<std::byte*>(to);
    while (bytes > 0) {
        const uint64_t part = std::min(bytes, kReadbackBytes);
        check(gpu_->api->copy_to_host(readback_, from, part, work_), "cuMemcpyDtoH");
        check(gpu_->api->stream_synchronize(work_), "cuStreamSynchronize");
        std::memcpy(out, readback_, part);
        out += part;
        from += part;
        bytes -= part;
    }
}

void Transfer::write(CUdeviceptr to, const void* from, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    gpu_->use();
    if (bytes <= kSmallBytes) {
        std::byte* slot = small_ + small_turn_ * kSmallBytes;
        small_turn_ = (small_turn_ + 1) % kSmallSlots;
        if (small_turn_ == 0) check(gpu_->api->stream_synchronize(work_), "cuStreamSynchronize");
        std::memcpy(slot, from, bytes);
        check(gpu_->api->copy_to_device(to, slot, bytes, work_), "cuMemcpyHtoD");
        return;
    }
    upload(from, to, bytes);
}

void Transfer::zero(CUdeviceptr at, uint64_t bytes) {
    gpu_->use();
    check(gpu_->api->set_bytes(at, 0, bytes, work_), "cuMemsetD8");
}

Transfer::Stage& Transfer::next_stage() {
    const DriverApi& api = *gpu_->api;
    if (stages_.size() < kStages) {
        Stage stage;
        void* memory = nullptr;
        check(api.host_allocate(&memory, kStageBytes, 0), "cuMemHostAlloc");
        stage.host = static_cast<std::byte*>(memory);
        stage.device = gpu_->allocate(kStageBytes);
        check(api.event_create(&stage.done, kEventDefault), "cuEventCreate");
        stages_.push_back(stage);
        return stages_.back();
    }
    Stage& stage = stages_[turn_];
    turn_ = (turn_ + 1) % kStages;
    check(api.event_synchronize(stage.done), "cuEventSynchronize");
    return stage;
}

void Transfer::copy_in(std::byte* to, const void* from, uint64_t bytes) {
    const auto* source = static_cast<const std::byte*>(from);
    if (bytes < kWorthThreads) {
        std::memcpy(to, source, bytes);
        return;
    }
    const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, kCopyThreads);
    const uint64_t share = (bytes / threads + 4095) / 4096 * 4096;
    std::vector<std::thread> helpers;
    for (unsigned t = 1; t < threads; ++t) {
        const uint64_t first = t * share;
        if (first >= bytes) break;
        helpers.emplace_back(
            [=] { std::memcpy(to + first, source + first, std::min(share, bytes - first)); });
    }
    std::memcpy(to, source, std::min(share, bytes));
    for (std::thread& helper : helpers) helper.join();
}

void Transfer::upload(const void* from, CUdeviceptr to, uint64_t bytes) {
    const DriverApi& api = *gpu_->api;
    const auto* source = static_cast<const std::byte*>(from);
    while (bytes > 0) {
        const uint64_t part = std::min(bytes, kStageBytes);
        Stage& stage = next_stage();
        copy_in(stage.host, source, part);
        check(api.copy_to_device(to, stage.host, part, work_), "cuMemcpyHtoD");
        check(api.event_record(stage.done, work_), "cuEventRecord");
        source += part;
        to += part;
        bytes -= part;
    }
}

void Transfer::repack(const KernelLibrary& library, const WeightShape& shape, const void* rows,
                      CUdeviceptr to) {
    const R32Shape* r32 = r32_shape(shape.type);
    if (r32 == nullptr) throw DeviceError("no such layout", {{"device", "cuda"}});
    std::lock_guard lock(mutex_);
    gpu_->use();
    const DriverApi& api = *gpu_->api;
    const uint64_t blocks = shape.cols / 256;
    const uint64_t row_bytes = blocks * r32->row_bytes;
    const uint64_t group_bytes = row_bytes * kGroupRows;
    if (group_bytes > kStageBytes) {
        throw DeviceError("rows of " + std::to_string(row_bytes) + " bytes are too long",
                          {{"device", "cuda"}});
    }
    const uint64_t rows_at_once = kStageBytes / group_bytes * kGroupRows;
    const auto* source = static_cast<const std::byte*>(rows);
    for (uint64_t row = 0; row < shape.rows; row += rows_at_once) {
        const uint64_t count = std::min(rows_at_once, shape.rows - row);
        Stage& stage = next_stage();
        copy_in(stage.host, source + row * row_bytes, count * row_bytes);
        check(api.copy_to_device(stage.device, stage.host, count * row_bytes, work_),
              "cuMemcpyHtoD");
        MuserRepackArgs args{};
        args.rows_in = stage.device;
        args.out = to + row / kGroupRows * group_bytes;
        args.rows = static_cast<uint32_t>(count);
        args.blocks = static_cast<uint32_t>(blocks);
        args.type = r32->type;
        void* params[] = {&args};
        const auto grid = static_cast<unsigned>(gpu_->multiprocessors) * 8;
        check(api.launch(library.repack(), grid, 1, 1, 256, 1, 1, 0, work_, params, nullptr),
              "cuLaunchKernel");
        check(api.event_record(stage.done, work_), "cuEventRecord");
    }
}

}  // namespace muser::device::cuda
