// Portable Metal: device, library, pipelines, buffers, queue.
#import "metal/portable/objects.h"

using muser::portable::BufferState;
using muser::portable::CommandBufferState;
using muser::portable::DeviceState;
using muser::portable::QueueState;
namespace stream = muser::stream;
namespace device = muser::device;

namespace {

id<MTLBuffer> make_buffer(DeviceState& state, std::shared_ptr<stream::Buffer> memory,
                          MTLResourceOptions options) {
    if (!memory) return nil;
    memory->id = state.next_id++;
    if (memory->allocation == 0) memory->allocation = memory->id;
    memory->tracked = (options & MTLResourceHazardTrackingModeUntracked) == 0;
    MuserBuffer* buffer = [[MuserBuffer alloc] init];
    buffer->state_ = new BufferState{memory, memory};
    return buffer;
}

NSError* make_error(const char* text) {
    return [[[NSError alloc] initWithCode:1 text:text] autorelease];
}

}  // namespace

@implementation MuserDevice
- (NSUInteger)maxBufferLength {
    return NSUInteger{1} << 46;
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
    MuserQueue* queue = [[MuserQueue alloc] init];
    auto state = std::make_shared<QueueState>();
    state->device = *state_;
    state->limit = count;
    queue->state_ = new std::shared_ptr<QueueState>(std::move(state));
    return queue;
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
    const auto use = (options & MTLResourceStorageModePrivate) != 0 ? device::MemoryUse::device
                                                                    : device::MemoryUse::shared;
    return make_buffer(**state_, (*state_)->device->allocate(length, use), options);
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)bytes
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(id)deallocator {
    (void)deallocator;
    return make_buffer(**state_, (*state_)->device->wrap(bytes, length), options);
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error {
    (void)options;
    (void)error;
    MuserLibrary* library = [[MuserLibrary alloc] init];
    library->device_ = new std::shared_ptr<DeviceState>(*state_);
    library->source_ = [source retain];
    return library;
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError**)error {
    if (function == nil) {
        if (error != nullptr) *error = make_error("no function");
        return nil;
    }
    MuserPipeline* pipeline = [[MuserPipeline alloc] init];
    pipeline->kernel_ = new stream::KernelRef(*((MuserFunction*)function)->kernel_);
    return pipeline;
}
- (void)dealloc {
    delete state_;
    [super dealloc];
}
@end

@implementation MuserLibrary
- (id<MTLFunction>)newFunctionWithName:(NSString*)name {
    stream::KernelRef kernel = (*device_)->device->kernel([name UTF8String], [source_ UTF8String]);
    if (!kernel) return nil;
    MuserFunction* function = [[MuserFunction alloc] init];
    function->kernel_ = new stream::KernelRef(std::move(kernel));
    return function;
}
- (void)dealloc {
    delete device_;
    [source_ release];
    [super dealloc];
}
@end

@implementation MuserFunction
- (void)dealloc {
    delete kernel_;
    [super dealloc];
}
@end

@implementation MuserPipeline
- (NSUInteger)threadExecutionWidth {
    return (*kernel_)->execution_width;
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
    return (*kernel_)->max_threads;
}
- (void)dealloc {
    delete kernel_;
    [super dealloc];
}
@end

@implementation MuserBuffer
- (NSUInteger)length {
    return state_->buffer->length;
}
- (void*)contents {
    return state_->buffer->contents;
}
- (void)dealloc {
    delete state_;
    [super dealloc];
}
@end

@implementation MuserQueue
- (id<MTLCommandBuffer>)commandBuffer {
    QueueState& queue = **state_;
    std::lock_guard lock(queue.mutex);
    while (!queue.in_flight.empty()) {
        std::lock_guard inner(queue.in_flight.front()->mutex);
        const auto status = queue.in_flight.front()->status;
        if (status != stream::Status::completed && status != stream::Status::error) break;
        queue.in_flight.pop_front();
    }
    // Apple's queue would block here, with no deadline; the engine counts so that it never does.
    if (queue.in_flight.size() >= queue.limit) return nil;
    MuserCommandBuffer* buffer = [[MuserCommandBuffer alloc] init];
    buffer->state_ = new CommandBufferState{queue.device, *state_,
                                            std::make_shared<stream::CommandBuffer>(), nil};
    return [buffer autorelease];
}
- (void)dealloc {
    delete state_;
    [super dealloc];
}
@end

namespace muser::portable {

id<MTLDevice> new_device(std::shared_ptr<device::Device> device) {
    MuserDevice* object = [[MuserDevice alloc] init];
    auto state = std::make_shared<DeviceState>();
    state->device = std::move(device);
    object->state_ = new std::shared_ptr<DeviceState>(std::move(state));
    return object;
}

device::Device& device_of(id<MTLDevice> device) {
    return *(*((MuserDevice*)device)->state_)->device;
}

id<MTLBuffer> new_weight_buffer(id<MTLDevice> object, const device::WeightShape& shape,
                                const device::WeightLayout& layout, const void* rows,
                                uint64_t bytes) {
    DeviceState& state = **((MuserDevice*)object)->state_;
    if (layout.suffix.empty()) {
        return make_buffer(state, state.device->wrap(rows, bytes), MTLResourceStorageModeShared);
    }
    auto memory = state.device->allocate(layout.bytes, device::MemoryUse::weights);
    if (!memory) return nil;
    state.device->repack(shape, layout, rows, *memory, 0);
    return make_buffer(state, std::move(memory), MTLResourceStorageModePrivate);
}

void set_label(id<MTLBuffer> buffer, const char* label) {
    ((MuserBuffer*)buffer)->state_->writable->label = label;
}

void write(id<MTLDevice> device, id<MTLBuffer> to, uint64_t offset, const void* from,
           uint64_t bytes) {
    device_of(device).write(*((MuserBuffer*)to)->state_->writable, offset, from, bytes);
}

const stream::BufferRef& buffer_of(id<MTLBuffer> buffer) {
    return ((MuserBuffer*)buffer)->state_->buffer;
}

}  // namespace muser::portable
