// The one interface between portable Metal and the machines that run its command buffers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/command_stream.h"

namespace muser::device {

// How a weight matrix lies in a device's memory. A kernel's name carries the layout as a suffix:
// mul_mv_q4_K_b16 reads ggml rows, mul_mv_q4_K_b16_r16 reads groups of 16 rows interleaved.
// The device that chooses a layout also defines it and owns its repacking.
struct WeightLayout {
    std::string suffix;  // "" (ggml's own rows), "_r8", "_r16", "_r32", ...
    uint64_t bytes = 0;  // of the whole matrix in this layout
};

struct WeightShape {
    uint32_t type;  // ggml type id
    uint64_t rows, cols;
};

struct Options {
    int threads = 0;        // cpu, emulator: 0 means the affinity and cgroup share
    std::string isa;        // cpu: "" means the best this processor has
    uint64_t seed = 0;      // emulator: scheduler seed
    std::string cache_dir;  // cuda: compiled kernels
    int gpu = 0;            // cuda
};

enum class MemoryUse {
    shared,   // host and device see it (step values, logits, flags)
    device,   // the device works on it; contents may be null where memory is not shared
    weights,  // written once at load, read by every token
};

class Device {
  public:
    virtual ~Device() = default;
    virtual std::string_view name() const = 0;  // "cpu", "cuda", "emulator"
    virtual std::string description() const = 0;
    virtual std::string isa() const = 0;  // "avx512vnni", "sm_90", ...
    virtual int threads() const = 0;      // worker threads; 0 where it has no meaning
    // New zeroed (uninitialised for MemoryUse::device) memory; null when there is none to be had.
    virtual std::shared_ptr<stream::Buffer> allocate(uint64_t bytes, MemoryUse use) = 0;
    // The caller's memory (a mapped file) as a buffer, or a copy of it where the device needs one.
    virtual std::shared_ptr<stream::Buffer> wrap(const void* bytes, uint64_t length) = 0;
    // Null when this device has no such kernel. `source` is MSL for devices that compile it
    // (cuda); devices with built-in kernels ignore it.
    virtual stream::KernelRef kernel(std::string_view name, std::string_view source) = 0;
    // The layout in which this device wants a matrix, and the repacking from ggml rows into
    // `destination` (made by allocate(layout.bytes, weights)). suffix "" needs no repacking.
    virtual WeightLayout layout(const WeightShape& shape) const = 0;
    virtual void repack(const WeightShape& shape, const WeightLayout& layout, const void* rows,
                        stream::Buffer& destination, uint64_t offset) = 0;
    // Starts a committed command buffer; returns at once. Buffers run in order of submission. The
    // device moves status to running, then to completed or error.
    virtual void submit(stream::CommandBufferRef commands) = 0;
    // Copies for memory the host cannot see; the default is memcpy on contents.
    virtual void read(const stream::Buffer& from, uint64_t offset, void* to, uint64_t bytes);
    virtual void write(stream::Buffer& to, uint64_t offset, const void* from, uint64_t bytes);
};

// Makes the named device, or throws ConfigError (unknown name, isa not on this machine) or
// DeviceError (no driver, no GPU).
std::unique_ptr<Device> make_device(std::string_view name, const Options& options);

// Names make_device knows in this build, usable or not.
std::vector<std::string> device_names();

}  // namespace muser::device
