// Portable Metal: command buffers and compute encoders. They record; the device executes.
#import "metal/portable/objects.h"

#include <cstring>

using muser::portable::CommandBufferState;
using muser::portable::EncoderState;
namespace stream = muser::stream;

@implementation MuserCommandBuffer
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
    stream::CommandBuffer& recording = *state_->recording;
    stream::Encoder encoder;
    encoder.concurrent = type == MTLDispatchTypeConcurrent;
    encoder.first_command = static_cast<uint32_t>(recording.commands.size());
    recording.encoders.push_back(encoder);
    MuserEncoder* object = [[MuserEncoder alloc] init];
    object->state_ = new EncoderState;
    object->state_->recording = state_->recording;
    object->state_->encoder = recording.encoders.size() - 1;
    object->state_->first_access = static_cast<uint32_t>(recording.accesses.size());
    return [object autorelease];
}
- (void)commit {
    state_->recording->set_status(stream::Status::committed);
    {
        std::lock_guard lock(state_->queue->mutex);
        state_->queue->in_flight.push_back(state_->recording);
    }
    state_->device->device->submit(state_->recording);
}
- (void)waitUntilCompleted {
    stream::CommandBuffer& recording = *state_->recording;
    std::unique_lock lock(recording.mutex);
    recording.changed.wait(lock, [&] {
        return recording.status == stream::Status::completed ||
               recording.status == stream::Status::error;
    });
}
- (MTLCommandBufferStatus)status {
    std::lock_guard lock(state_->recording->mutex);
    switch (state_->recording->status) {
        case stream::Status::recording:
            return MTLCommandBufferStatusNotEnqueued;
        case stream::Status::committed:
            return MTLCommandBufferStatusCommitted;
        case stream::Status::running:
            return MTLCommandBufferStatusScheduled;
        case stream::Status::completed:
            return MTLCommandBufferStatusCompleted;
        case stream::Status::error:
            break;
    }
    return MTLCommandBufferStatusError;
}
- (NSError*)error {
    std::lock_guard lock(state_->recording->mutex);
    if (state_->recording->status != stream::Status::error) return nil;
    if (state_->error == nil) {
        state_->error =
            [[NSError alloc] initWithCode:static_cast<NSInteger>(state_->recording->error)
                                     text:state_->recording->error_message.c_str()];
    }
    return state_->error;
}
- (CFTimeInterval)GPUStartTime {
    std::lock_guard lock(state_->recording->mutex);
    return state_->recording->start_seconds;
}
- (CFTimeInterval)GPUEndTime {
    std::lock_guard lock(state_->recording->mutex);
    return state_->recording->end_seconds;
}
- (void)dealloc {
    [state_->error release];
    delete state_;
    [super dealloc];
}
@end

@implementation MuserEncoder
- (void)setComputePipelineState:(id<MTLComputePipelineState>)pipeline {
    state_->kernel = *((MuserPipeline*)pipeline)->kernel_;
    for (stream::BufferRef& buffer : state_->buffers) buffer.reset();
    state_->args_length = 0;
}
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
    (void)index;  // arguments are at index 0, by the catalogue's rule
    auto& pool = state_->recording->args;
    // Structs with 64-bit members are read in place, so each starts at a multiple of 8.
    pool.resize((pool.size() + 7) / 8 * 8);
    state_->args_offset = static_cast<uint32_t>(pool.size());
    state_->args_length = static_cast<uint32_t>(length);
    const auto* first = static_cast<const std::byte*>(bytes);
    pool.insert(pool.end(), first, first + length);
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
    state_->buffers[index] = muser::portable::buffer_of(buffer);
    state_->offsets[index] = offset;
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads {
    stream::CommandBuffer& recording = *state_->recording;
    stream::Dispatch dispatch;
    dispatch.kernel = state_->kernel;
    dispatch.label = state_->label;
    dispatch.groups = {static_cast<uint32_t>(groups.width), static_cast<uint32_t>(groups.height),
                       static_cast<uint32_t>(groups.depth)};
    dispatch.threads = {static_cast<uint32_t>(threads.width), static_cast<uint32_t>(threads.height),
                        static_cast<uint32_t>(threads.depth)};
    dispatch.first_binding = static_cast<uint32_t>(recording.bindings.size());
    for (uint32_t i = 0; i < EncoderState::kArguments; ++i) {
        if (state_->buffers[i]) {
            recording.bindings.push_back({i, state_->buffers[i], state_->offsets[i]});
        }
    }
    dispatch.binding_count =
        static_cast<uint32_t>(recording.bindings.size()) - dispatch.first_binding;
    dispatch.first_access = state_->first_access;
    dispatch.access_count = static_cast<uint32_t>(recording.accesses.size()) - state_->first_access;
    state_->first_access = static_cast<uint32_t>(recording.accesses.size());
    dispatch.args_offset = state_->args_offset;
    dispatch.args_length = state_->args_length;
    recording.commands.push_back(
        {stream::Command::Kind::dispatch, static_cast<uint32_t>(recording.dispatches.size())});
    recording.dispatches.push_back(std::move(dispatch));
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
    (void)scope;
    stream::CommandBuffer& recording = *state_->recording;
    recording.commands.push_back(
        {stream::Command::Kind::barrier, static_cast<uint32_t>(recording.barriers.size())});
    recording.barriers.push_back({true, 0, 0, state_->label});
}
- (void)memoryBarrierWithResources:(const id<MTLResource>[])resources count:(NSUInteger)count {
    stream::CommandBuffer& recording = *state_->recording;
    const auto first = static_cast<uint32_t>(recording.resources.size());
    for (NSUInteger i = 0; i < count; ++i) {
        recording.resources.push_back(muser::portable::buffer_of((id<MTLBuffer>)resources[i]));
    }
    recording.commands.push_back(
        {stream::Command::Kind::barrier, static_cast<uint32_t>(recording.barriers.size())});
    recording.barriers.push_back({false, first, static_cast<uint32_t>(count), state_->label});
}
- (void)pushDebugGroup:(NSString*)name {
    stream::CommandBuffer& recording = *state_->recording;
    state_->label = static_cast<uint32_t>(recording.labels.size());
    recording.labels.emplace_back([name UTF8String]);
}
- (void)popDebugGroup {
}
- (void)endEncoding {
    stream::Encoder& encoder = state_->recording->encoders[state_->encoder];
    encoder.command_count =
        static_cast<uint32_t>(state_->recording->commands.size()) - encoder.first_command;
}
- (void)dealloc {
    delete state_;
    [super dealloc];
}
@end

namespace muser::portable {

const stream::CommandBufferRef& recording_of(id<MTLCommandBuffer> buffer) {
    return ((MuserCommandBuffer*)buffer)->state_->recording;
}

void declare_accesses(id<MTLComputeCommandEncoder> encoder,
                      std::span<const stream::DeclaredAccess> accesses) {
    auto& pool = ((MuserEncoder*)encoder)->state_->recording->accesses;
    pool.insert(pool.end(), accesses.begin(), accesses.end());
}

}  // namespace muser::portable
