// The emulator: a device that runs the .metal files themselves, lane by lane, on this machine.
//
// Beyond device::Device it can be told to shuffle (set_seed), to hold command buffers back so that
// several overlap (hold), and to trace (set_tracing): then every load and store is checked against
// what the launchers declared (trace.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "device/device.h"
#include "device/emulator/memory.h"
#include "device/emulator/scheduler.h"
#include "device/emulator/trace.h"

namespace muser::emulator {

class EmulatorDevice final : public device::Device {
  public:
    explicit EmulatorDevice(const device::Options& options);

    std::string_view name() const override { return "emulator"; }
    std::string description() const override;
    std::string isa() const override { return "msl"; }
    int threads() const override { return 1; }
    std::shared_ptr<stream::Buffer> allocate(uint64_t bytes, device::MemoryUse use) override;
    std::shared_ptr<stream::Buffer> wrap(const void* bytes, uint64_t length) override;
    stream::KernelRef kernel(std::string_view name, std::string_view source) override;
    device::WeightLayout layout(const device::WeightShape& shape) const override;
    void repack(const device::WeightShape& shape, const device::WeightLayout& layout,
                const void* rows, stream::Buffer& destination, uint64_t offset) override;
    void submit(stream::CommandBufferRef commands) override;
    void write(stream::Buffer& to, uint64_t offset, const void* from, uint64_t bytes) override;

    // From the next command buffer that finds the device idle.
    void set_seed(uint64_t seed) { scheduler_.set_seed(seed); }
    // ConfigError in a build without the tracer.
    void set_tracing(bool tracing);
    // What traced command buffers that have completed since the last call have shown.
    TraceReport take_report() { return scheduler_.take_report(); }
    void hold(bool held) { scheduler_.hold(held); }

  private:
    Memory memory_;
    Scheduler scheduler_;
};

// Traces one recorded command buffer on its device: runs it to its end and reports.
TraceReport trace(EmulatorDevice& device, const stream::CommandBufferRef& commands);

bool tracer_available();

}  // namespace muser::emulator
