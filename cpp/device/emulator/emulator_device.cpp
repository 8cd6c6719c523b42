#include "device/emulator/emulator_device.h"

#include <cstring>

#include "contract/blocks.h"
#include "device/registry.h"
#include "errors.h"

namespace muser::emulator {

EmulatorDevice::EmulatorDevice(const device::Options& options)
    : scheduler_(memory_, options.seed) {}

std::string EmulatorDevice::description() const {
    return "emulator: " + std::to_string(all_kernels(false).size()) +
           " Metal kernels, lane by lane";
}

std::shared_ptr<stream::Buffer> EmulatorDevice::allocate(uint64_t bytes, device::MemoryUse use) {
    return memory_.allocate(bytes, use);
}

std::shared_ptr<stream::Buffer> EmulatorDevice::wrap(const void* bytes, uint64_t length) {
    // Kernels read 16 bytes at once; a file may have its tensors at multiples of 8.
    if (reinterpret_cast<uintptr_t>(bytes) % 16 == 0) return memory_.wrap(bytes, length);
    auto copy = memory_.allocate(length, device::MemoryUse::shared);
    if (copy != nullptr) std::memcpy(copy->contents, bytes, length);
    return copy;
}

stream::KernelRef EmulatorDevice::kernel(std::string_view name, std::string_view) {
    const KernelEntry* plain = find_kernel(name, false);
    if (plain == nullptr) return nullptr;
    auto kernel = std::make_shared<EmulatorKernel>();
    kernel->name = std::string(name);
    kernel->plain = plain;
    kernel->traced = find_kernel(name, true);
    return kernel;
}

device::WeightLayout EmulatorDevice::layout(const device::WeightShape& shape) const {
    const contract::WeightTypeInfo* info = contract::find_weight_type(shape.type);
    if (info == nullptr) {
        throw ConfigError("the emulator has no weights of ggml type " + std::to_string(shape.type),
                          {{"found", std::to_string(shape.type)}});
    }
    return {"", contract::row_bytes(info->type, shape.cols) * shape.rows};
}

void EmulatorDevice::repack(const device::WeightShape& shape, const device::WeightLayout& layout,
                            const void* rows, stream::Buffer& destination, uint64_t offset) {
    (void)shape;
    write(destination, offset, rows, layout.bytes);
}

void EmulatorDevice::submit(stream::CommandBufferRef commands) {
    scheduler_.submit(std::move(commands));
}

void EmulatorDevice::write(stream::Buffer& to, uint64_t offset, const void* from, uint64_t bytes) {
    std::memcpy(to.contents + offset, from, bytes);
    if (const std::shared_ptr<Allocation> allocation = memory_.of(to)) {
        allocation->mark_written(static_cast<uint64_t>(to.contents - allocation->begin) + offset,
                                 bytes);
    }
}

bool tracer_available() { return !all_kernels(true).empty(); }

void EmulatorDevice::set_tracing(bool tracing) {
    if (tracing && !tracer_available()) {
        throw ConfigError("this build has no traced kernels: its compiler cannot instrument them",
                          {{"setting", "tracing"}});
    }
    scheduler_.set_tracing(tracing);
}

TraceReport trace(EmulatorDevice& device, const stream::CommandBufferRef& commands) {
    device.set_tracing(true);
    device.take_report();
    device.submit(commands);
    {
        std::unique_lock lock(commands->mutex);
        commands->changed.wait(lock, [&] {
            return commands->status == stream::Status::completed ||
                   commands->status == stream::Status::error;
        });
    }
    device.set_tracing(false);
    return device.take_report();
}

}  // namespace muser::emulator

namespace muser::device {

std::unique_ptr<Device> make_emulator_device(const Options& options) {
    return std::make_unique<emulator::EmulatorDevice>(options);
}

}  // namespace muser::device
