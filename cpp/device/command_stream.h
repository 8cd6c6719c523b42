// What a command buffer holds, as plain data: the recording that portable Metal writes, devices
// execute and the auditor reads. It knows neither Metal nor the token graph.
//
// Lifetimes: a CommandBuffer keeps every Buffer and Kernel it names alive (retained references are
// the only kind), until it is released itself.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace muser::stream {

struct Size3 {
    uint32_t x = 1, y = 1, z = 1;
    uint64_t count() const { return uint64_t{x} * y * z; }
    bool operator==(const Size3&) const = default;
};

// Memory as one buffer object sees it. Two objects over the same bytes share `allocation` and
// differ in `id`: conflicts are judged on bytes, barriers and tracking cover objects.
struct Buffer {
    uint64_t id = 0;
    uint64_t allocation = 0;
    uint64_t allocation_offset = 0;  // of the object's first byte within its allocation
    uint64_t length = 0;
    bool tracked = true;
    std::string label;
    std::byte* contents = nullptr;  // host address; null where the host cannot see the memory
    uint64_t device_address = 0;    // address for devices whose memory is not the host's
    std::shared_ptr<void> storage;  // releases the memory
};
using BufferRef = std::shared_ptr<const Buffer>;

// A kernel as a device made it. Devices derive from it.
struct Kernel {
    std::string name;
    uint32_t execution_width = 32;
    uint32_t max_threads = 1024;
    virtual ~Kernel() = default;
};
using KernelRef = std::shared_ptr<const Kernel>;

enum class Access : uint8_t { read = 1, write = 2, read_write = 3 };

// A range that depends on step values: rows [first, first + count) modulo capacity, each `stride`
// bytes, where first and count are 32-bit words of the step slot bound at `step_argument`.
// `offset` and `length` of the access are then the bound that the rows stay in.
struct RowRule {
    static constexpr uint32_t kConstant = UINT32_MAX;
    bool active = false;
    uint32_t step_argument = 0;
    uint32_t first_word = kConstant;  // kConstant: first is 0
    uint32_t count_word = kConstant;  // kConstant: count is 1
    uint32_t capacity = 0;            // rows; 0: no wrap
    uint64_t stride = 0;
};

// What a launcher says a dispatch does to one argument. Offsets are from the binding's offset.
struct DeclaredAccess {
    uint32_t argument = 0;
    Access access = Access::read;
    uint64_t offset = 0;
    uint64_t length = 0;
    RowRule rows;
};

struct Binding {
    uint32_t argument = 0;  // index of [[buffer(n)]]
    BufferRef buffer;
    uint64_t offset = 0;
};

struct Dispatch {
    KernelRef kernel;
    uint32_t label = 0;  // index into CommandBuffer::labels: the closure
    Size3 groups;
    Size3 threads;
    // Slices of the command buffer's pools.
    uint32_t first_binding = 0, binding_count = 0;
    uint32_t first_access = 0, access_count = 0;
    uint32_t args_offset = 0, args_length = 0;
};

struct Barrier {
    bool all_buffers = true;
    uint32_t first_resource = 0, resource_count = 0;  // objects, when not all_buffers
    uint32_t label = 0;                               // closure it was placed in or before
};

struct Command {
    enum class Kind : uint8_t { dispatch, barrier } kind;
    uint32_t index;  // into dispatches or barriers
};

struct Encoder {
    bool concurrent = false;
    uint32_t first_command = 0, command_count = 0;
};

enum class Status : uint8_t { recording, committed, running, completed, error };

// Codes as MTLCommandBufferError has them, so that messages agree on every device.
enum class ErrorCode : uint32_t {
    none = 0,
    internal = 1,
    timeout = 2,
    page_fault = 3,
    not_permitted = 7,
    out_of_memory = 8,
    invalid_resource = 9,
};

// Measured time of one closure within a command buffer, where the device can tell.
struct LabelTime {
    uint32_t label;
    double start_seconds, end_seconds;  // on the device's clock
};

struct CommandBuffer {
    std::vector<std::string> labels;
    std::vector<Encoder> encoders;
    std::vector<Command> commands;
    std::vector<Dispatch> dispatches;
    std::vector<Barrier> barriers;
    std::vector<Binding> bindings;
    std::vector<DeclaredAccess> accesses;
    std::vector<BufferRef> resources;
    std::vector<std::byte> args;

    // Filled by the device. Guarded by `mutex`; `changed` is signalled on each change of status.
    mutable std::mutex mutex;
    mutable std::condition_variable changed;
    Status status = Status::recording;
    ErrorCode error = ErrorCode::none;
    std::string error_message;
    int64_t error_label = -1;  // closure at fault, where the device can tell
    double start_seconds = 0, end_seconds = 0;
    bool time_labels = false;  // asked for by the profiler before commit
    std::vector<LabelTime> label_times;

    const std::byte* arguments(const Dispatch& d) const { return args.data() + d.args_offset; }
    void set_status(Status next) {
        {
            std::lock_guard lock(mutex);
            status = next;
        }
        changed.notify_all();
    }
    void fail(ErrorCode code, std::string message, int64_t label = -1) {
        {
            std::lock_guard lock(mutex);
            status = Status::error;
            error = code;
            error_message = std::move(message);
            error_label = label;
        }
        changed.notify_all();
    }
};
using CommandBufferRef = std::shared_ptr<CommandBuffer>;

}  // namespace muser::stream
