// The classes behind portable Metal's protocols. Each holds one pointer to plain C++ state: gcc's
// runtime does not construct C++ instance variables.
#pragma once

#import "metal/portable/portable.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <string>

namespace muser::portable {

struct DeviceState {
    std::shared_ptr<device::Device> device;
    std::atomic<uint64_t> next_id{1};
};

struct QueueState {
    std::shared_ptr<DeviceState> device;
    size_t limit;
    std::mutex mutex;
    std::deque<stream::CommandBufferRef> in_flight;
};

struct BufferState {
    std::shared_ptr<stream::Buffer> writable;
    stream::BufferRef buffer;
};

struct CommandBufferState {
    std::shared_ptr<DeviceState> device;
    std::shared_ptr<QueueState> queue;
    stream::CommandBufferRef recording;
    NSError* error = nil;
};

// What an encoder has bound since its pipeline was set. Metal keeps bindings across pipelines; a
// recording starts afresh, so a launcher that forgets an argument shows here and not on a Mac.
struct EncoderState {
    static constexpr size_t kArguments = 31;
    stream::CommandBufferRef recording;
    stream::KernelRef kernel;
    stream::BufferRef buffers[kArguments];
    uint64_t offsets[kArguments] = {};
    uint32_t args_offset = 0, args_length = 0;
    uint32_t first_access = 0;
    uint32_t label = 0;
    size_t encoder = 0;
};

}  // namespace muser::portable

@interface MuserDevice : MuserObject <MTLDevice> {
  @public
    std::shared_ptr<muser::portable::DeviceState>* state_;
}
@end

@interface MuserQueue : MuserObject <MTLCommandQueue> {
  @public
    std::shared_ptr<muser::portable::QueueState>* state_;
}
@end

@interface MuserBuffer : MuserObject <MTLBuffer> {
  @public
    muser::portable::BufferState* state_;
}
@end

@interface MuserLibrary : MuserObject <MTLLibrary> {
  @public
    std::shared_ptr<muser::portable::DeviceState>* device_;
    NSString* source_;
}
@end

@interface MuserFunction : MuserObject <MTLFunction> {
  @public
    muser::stream::KernelRef* kernel_;
}
@end

@interface MuserPipeline : MuserObject <MTLComputePipelineState> {
  @public
    muser::stream::KernelRef* kernel_;
}
@end

@interface MuserCommandBuffer : MuserObject <MTLCommandBuffer> {
  @public
    muser::portable::CommandBufferState* state_;
}
@end

@interface MuserEncoder : MuserObject <MTLComputeCommandEncoder> {
  @public
    muser::portable::EncoderState* state_;
}
@end
