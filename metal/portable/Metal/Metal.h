// Metal for machines without Metal: the part of Apple's API that the engine calls, with the same
// names, signatures and values, over our own small root class. On Apple this folder is not on the
// include path and <Metal/Metal.h> is the framework's.
//
// A selector is here exactly because the engine sends it; tests/test_portable_selectors.py fails
// on one that nothing calls.
#pragma once

#include <objc/objc.h>
#include <stddef.h>
#include <stdint.h>

// ---- the little of Foundation that Metal's signatures mention ----------------------------------
typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef double CFTimeInterval;

@protocol NSObject
- (id)retain;
- (oneway void)release;
- (id)autorelease;
@end

__attribute__((objc_root_class))
@interface MuserObject<NSObject> {
    Class isa;  // a root class declares it itself; the runtime fills it in
  @private
    int32_t references_;
}
+ (id)alloc;
- (id)init;
- (void)dealloc;
@end

@interface NSString : MuserObject {
  @private
    char* text_;
}
- (id)initWithUTF8String:(const char*)text;
- (const char*)UTF8String;
@end

@interface NSError : MuserObject {
  @private
    NSInteger code_;
    NSString* description_;
}
- (id)initWithCode:(NSInteger)code text:(const char*)text;
- (NSInteger)code;
- (NSString*)localizedDescription;
@end

// Autoreleased objects live until the innermost pool of their thread is popped.
extern "C" void* objc_autoreleasePoolPush(void);
extern "C" void objc_autoreleasePoolPop(void* pool);

// ---- Metal
// ---------------------------------------------------------------------------------------
typedef struct {
    NSUInteger width, height, depth;
} MTLSize;
static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
    MTLSize size = {width, height, depth};
    return size;
}

typedef NSUInteger MTLResourceOptions;
enum : NSUInteger {
    MTLResourceStorageModeShared = 0,
    MTLResourceStorageModePrivate = 2 << 4,
    MTLResourceHazardTrackingModeUntracked = 1 << 8,
    MTLResourceHazardTrackingModeTracked = 2 << 8,
};
typedef enum : NSUInteger { MTLDispatchTypeSerial, MTLDispatchTypeConcurrent } MTLDispatchType;
typedef enum : NSUInteger { MTLBarrierScopeBuffers = 1 } MTLBarrierScope;
typedef enum : NSUInteger {
    MTLCommandBufferStatusNotEnqueued = 0,
    MTLCommandBufferStatusEnqueued = 1,
    MTLCommandBufferStatusCommitted = 2,
    MTLCommandBufferStatusScheduled = 3,
    MTLCommandBufferStatusCompleted = 4,
    MTLCommandBufferStatusError = 5,
} MTLCommandBufferStatus;

@protocol MTLResource <NSObject>
@end

@protocol MTLBuffer <MTLResource>
- (NSUInteger)length;
- (void*)contents;
@end

@protocol MTLFunction <NSObject>
@end

@protocol MTLLibrary <NSObject>
- (id<MTLFunction>)newFunctionWithName:(NSString*)name;
@end

@protocol MTLComputePipelineState <NSObject>
- (NSUInteger)threadExecutionWidth;
- (NSUInteger)maxTotalThreadsPerThreadgroup;
@end

@protocol MTLComputeCommandEncoder <NSObject>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope;
- (void)memoryBarrierWithResources:(const id<MTLResource>[])resources count:(NSUInteger)count;
- (void)pushDebugGroup:(NSString*)name;
- (void)popDebugGroup;
- (void)endEncoding;
@end

@protocol MTLCommandBuffer <NSObject>
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type;
- (void)commit;
- (void)waitUntilCompleted;
- (MTLCommandBufferStatus)status;
- (NSError*)error;
- (CFTimeInterval)GPUStartTime;
- (CFTimeInterval)GPUEndTime;
@end

@protocol MTLCommandQueue <NSObject>
- (id<MTLCommandBuffer>)commandBuffer;
@end

@class MTLCompileOptions;

@protocol MTLDevice <NSObject>
- (NSUInteger)maxBufferLength;
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)bytes
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(id)deallocator;
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError**)error;
@end
