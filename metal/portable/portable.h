// What portable Metal offers beyond Metal's own API: making a device by name, and the way from a
// Metal object to what it stands for in the command stream.
#pragma once

#import <Metal/Metal.h>

#include <memory>
#include <span>

#include "device/device.h"

namespace muser::portable {

// A Metal device over one of muser::device's. +1 reference, as `new...` methods give.
id<MTLDevice> new_device(std::shared_ptr<device::Device> device);

// The device behind a Metal device that new_device made.
device::Device& device_of(id<MTLDevice> device);

// A buffer in the layout a weight wants: repacked or wrapped without copying.
id<MTLBuffer> new_weight_buffer(id<MTLDevice> device, const device::WeightShape& shape,
                                const device::WeightLayout& layout, const void* rows,
                                uint64_t bytes);

// Names a buffer, for findings and error messages.
void set_label(id<MTLBuffer> buffer, const char* label);

// Host copies into memory that the host may not see directly.
void write(id<MTLDevice> device, id<MTLBuffer> to, uint64_t offset, const void* from,
           uint64_t bytes);

const stream::BufferRef& buffer_of(id<MTLBuffer> buffer);
const stream::CommandBufferRef& recording_of(id<MTLCommandBuffer> buffer);

// Declares what the next dispatch of this encoder does to its arguments.
void declare_accesses(id<MTLComputeCommandEncoder> encoder,
                      std::span<const stream::DeclaredAccess> accesses);

}  // namespace muser::portable
