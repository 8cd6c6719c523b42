// Ownership of Objective-C objects from C++: no ARC, so one smart pointer and one pool scope.
#pragma once

#import <Metal/Metal.h>

#include <utility>

#if defined(__APPLE__)
extern "C" void* objc_autoreleasePoolPush(void);
extern "C" void objc_autoreleasePoolPop(void* pool);
#endif

namespace muser {

// Names for protocol types: gcc does not take `>>` behind one in a template argument list.
typedef id<MTLDevice> DeviceId;
typedef id<MTLCommandQueue> QueueId;
typedef id<MTLLibrary> LibraryId;
typedef id<MTLFunction> FunctionId;
typedef id<MTLComputePipelineState> PipelineId;
typedef id<MTLResource> ResourceId;
typedef id<MTLBuffer> BufferId;
typedef id<MTLCommandBuffer> CommandBufferId;
typedef id<MTLComputeCommandEncoder> EncoderId;

// Owns one reference. `adopt` takes over what `new...` and `alloc` return (+1); `retain` adds one
// to what other methods return.
template <class T>
class ObjcPtr {
  public:
    ObjcPtr() = default;
    static ObjcPtr adopt(T object) {
        ObjcPtr pointer;
        pointer.object_ = object;
        return pointer;
    }
    static ObjcPtr retain(T object) {
        [object retain];
        return adopt(object);
    }
    ObjcPtr(const ObjcPtr& other) : object_(other.object_) { [object_ retain]; }
    ObjcPtr(ObjcPtr&& other) noexcept : object_(std::exchange(other.object_, T{})) {}
    ObjcPtr& operator=(ObjcPtr other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~ObjcPtr() { [object_ release]; }
    T get() const { return object_; }
    explicit operator bool() const { return object_ != nil; }

  private:
    T object_ = nil;
};

// What Metal returns without `new` is released when the innermost scope ends.
class AutoreleaseScope {
  public:
    AutoreleaseScope() : pool_(objc_autoreleasePoolPush()) {}
    ~AutoreleaseScope() { objc_autoreleasePoolPop(pool_); }
    AutoreleaseScope(const AutoreleaseScope&) = delete;
    AutoreleaseScope& operator=(const AutoreleaseScope&) = delete;

  private:
    void* pool_;
};

}  // namespace muser
