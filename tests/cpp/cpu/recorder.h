// Command buffers as portable Metal would record them, and the wait for their end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "device/command_stream.h"
#include "device/device.h"

namespace muser::cpu_test {

using BufferRef = std::shared_ptr<stream::Buffer>;

class Recorder {
  public:
    explicit Recorder(device::Device& device)
        : device_(device), commands_(std::make_shared<stream::CommandBuffer>()) {}

    Recorder& encoder(bool concurrent);
    // A closure: dispatches that follow carry its label.
    Recorder& closure(std::string label);
    Recorder& barrier();
    // Buffers are bound from index 1.
    template <class Args>
    Recorder& dispatch(std::string_view kernel, const Args& args,
                       const std::vector<BufferRef>& buffers) {
        return add(device_.kernel(kernel, ""), &args, sizeof args, buffers);
    }
    Recorder& add(stream::KernelRef kernel, const void* args, size_t length,
                  const std::vector<BufferRef>& buffers);
    stream::CommandBuffer& commands() { return *commands_; }
    stream::CommandBufferRef submit();

  private:
    device::Device& device_;
    stream::CommandBufferRef commands_;
};

// Blocks until the status is final.
stream::Status wait(const stream::CommandBuffer& commands);

// New memory of the device holding `content`.
template <class T>
BufferRef upload(device::Device& device, const std::vector<T>& content) {
    BufferRef buffer = device.allocate(content.size() * sizeof(T), device::MemoryUse::shared);
    device.write(*buffer, 0, content.data(), content.size() * sizeof(T));
    return buffer;
}

template <class T>
std::vector<T> download(device::Device& device, const BufferRef& buffer) {
    std::vector<T> content(buffer->length / sizeof(T));
    device.read(*buffer, 0, content.data(), content.size() * sizeof(T));
    return content;
}

}  // namespace muser::cpu_test
