// Device, queue, pipelines, and the one path by which buffers are made.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "metal/objc_ptr.h"
#include "model/model_weights.h"

namespace muser {

// One Metal buffer object. All of the engine's memory is reached through these.
struct Buffer {
    ObjcPtr<BufferId> object;
    uint64_t length = 0;
    std::string label;
    explicit operator bool() const { return static_cast<bool>(object); }
};

// Where a buffer lives and who may look at it.
enum class Placement {
    host_visible,  // step values, logits, flags: the host reads or writes them
    device,        // activations, KV planes; on unified memory the host sees these too
};

// A weight matrix or norm vector where this device wants it.
struct DeviceWeight {
    Buffer buffer;
    uint64_t offset = 0;  // of the first row within the buffer
    uint64_t bytes = 0;   // in this layout
    model::TensorType type = model::TensorType::F32;
    uint32_t rows = 0, cols = 0;
    std::string layout;      // suffix: "" is ggml's own rows
    std::string type_name;   // as kernel names spell it: q4_K, f32, ...
    bool quantised = false;  // products read the block form
};

struct Pipeline {
    ObjcPtr<PipelineId> state;
    uint32_t max_threads = 0;
};

struct ContextOptions {
    std::string device = "cpu";
    device::Options options;
    std::string kernel_dir;  // folder of the .metal files, for devices that compile them
    bool untracked = false;
    std::map<std::string, int> faults;  // test switches of the device
    size_t command_buffers = 72;        // queue limit: above the longest lane
};

class Context {
  public:
    // ConfigError, DeviceError, or ProbeError when the device's arithmetic is not the contract's.
    explicit Context(const ContextOptions& options);
    ~Context();

    id<MTLDevice> device() const { return device_.get(); }
    id<MTLCommandQueue> queue() const { return queue_.get(); }

    // DeviceError when the kernel is not there or its pipeline cannot run our launches.
    const Pipeline& pipeline(std::string_view kernel);
    bool has_kernel(std::string_view kernel);

    // The one allocation path: tracked unless the context says otherwise. DeviceMemoryError.
    Buffer make_buffer(std::string label, uint64_t bytes, Placement placement);
    DeviceWeight make_weight(const model::Model& model, const model::Weight& weight);

    // Host copies, for memory the host may not see directly.
    void read(const Buffer& from, uint64_t offset, void* to, uint64_t bytes) const;
    void write(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) const;

    struct Description {
        std::string name, description, isa;
        int threads = 0;
        std::map<std::string, uint64_t> weight_bytes;  // layout -> bytes
    };
    const Description& description() const { return description_; }

  private:
    const Pipeline* find_pipeline(std::string_view kernel);
    id<MTLBuffer> map_weight(const model::Model& model, const model::Weight& weight,
                             DeviceWeight& out);
    void run_probe();

    bool untracked_ = false;
    ObjcPtr<DeviceId> device_;
    ObjcPtr<QueueId> queue_;
    ObjcPtr<LibraryId> library_;
    std::map<std::string, Pipeline, std::less<>> pipelines_;
    struct Window {
        uint64_t offset, length;
        Buffer buffer;
    };
    std::vector<Window> windows_;  // page-aligned pieces of the mapped file (Metal only)
    Description description_;
};

}  // namespace muser
