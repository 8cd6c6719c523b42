// The part of the CUDA driver API that the device uses, with declarations of our own: nothing of
// CUDA is needed to build, and the driver is opened at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace muser::device::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUkernel = struct CUkern_st*;

inline constexpr CUresult kSuccess = 0;
inline constexpr CUresult kOutOfMemory = 2;
inline constexpr CUresult kNoDevice = 100;
inline constexpr CUresult kInvalidImage = 200;
inline constexpr CUresult kNoBinaryForGpu = 209;
inline constexpr CUresult kUnsupportedPtx = 222;
inline constexpr CUresult kNotFound = 500;
inline constexpr CUresult kIllegalAddress = 700;
inline constexpr CUresult kLaunchOutOfResources = 701;
inline constexpr CUresult kLaunchTimeout = 702;
inline constexpr CUresult kMisalignedAddress = 716;

// CUdevice_attribute
inline constexpr int kMultiprocessors = 16;
inline constexpr int kMajor = 75;
inline constexpr int kMinor = 76;
inline constexpr int kSharedMemoryPerBlockOptin = 97;
// CUfunction_attribute
inline constexpr int kFunctionMaxThreads = 0;
inline constexpr int kFunctionMaxDynamicShared = 8;
// CUstream_flags, CUevent_flags
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;

struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2
    CUfunction function = nullptr;
    unsigned grid_x = 1, grid_y = 1, grid_z = 1;
    unsigned block_x = 1, block_y = 1, block_z = 1;
    unsigned shared_bytes = 0;
    void** params = nullptr;
    void** extra = nullptr;
    CUkernel kernel = nullptr;
    CUcontext context = nullptr;
};

struct GraphEdgeData {  // CUgraphEdgeData
    unsigned char from_port = 0, to_port = 0, type = 0;
    unsigned char reserved[5] = {};
};
inline constexpr unsigned char kPortProgrammatic = 1;
inline constexpr unsigned char kEdgeProgrammatic = 1;

// name in this struct, symbol in libcuda, parameters
#define MUSER_CUDA_CALLS(X)                                                                       \
    X(init, cuInit, (unsigned flags))                                                             \
    X(driver_version, cuDriverGetVersion, (int* version))                                         \
    X(device_count, cuDeviceGetCount, (int* count))                                               \
    X(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                                  \
    X(device_name, cuDeviceGetName, (char* name, int length, CUdevice device))                    \
    X(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))       \
    X(device_memory, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                      \
    X(context_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))           \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                           \
    X(context_set, cuCtxSetCurrent, (CUcontext context))                                          \
    X(memory_info, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total))                        \
    X(memory_allocate, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                      \
    X(memory_free, cuMemFree_v2, (CUdeviceptr address))                                           \
    X(host_allocate, cuMemHostAlloc, (void** address, size_t bytes, unsigned flags))              \
    X(host_free, cuMemFreeHost, (void* address))                                                  \
    X(copy_to_device, cuMemcpyHtoDAsync_v2,                                                       \
      (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                          \
    X(copy_to_host, cuMemcpyDtoHAsync_v2,                                                         \
      (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                                \
    X(set_bytes, cuMemsetD8Async,                                                                 \
      (CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream))                  \
    X(stream_create, cuStreamCreate, (CUstream * stream, unsigned flags))                         \
    X(stream_destroy, cuStreamDestroy_v2, (CUstream stream))                                      \
    X(stream_synchronize, cuStreamSynchronize, (CUstream stream))                                 \
    X(event_create, cuEventCreate, (CUevent * event, unsigned flags))                             \
    X(event_destroy, cuEventDestroy_v2, (CUevent event))                                          \
    X(event_record, cuEventRecord, (CUevent event, CUstream stream))                              \
    X(event_synchronize, cuEventSynchronize, (CUevent event))                                     \
    X(event_elapsed, cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent end))       \
    X(module_load, cuModuleLoadData, (CUmodule * module, const void* image))                      \
    X(module_unload, cuModuleUnload, (CUmodule module))                                           \
    X(module_function, cuModuleGetFunction,                                                       \
      (CUfunction * function, CUmodule module, const char* name))                                 \
    X(function_get, cuFuncGetAttribute, (int* value, int attribute, CUfunction function))         \
    X(function_set, cuFuncSetAttribute, (CUfunction function, int attribute, int value))          \
    X(launch, cuLaunchKernel,                                                                     \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,  \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** params, \
       void** extra))                                                                             \
    X(graph_create, cuGraphCreate, (CUgraph * graph, unsigned flags))                             \
    X(graph_destroy, cuGraphDestroy, (CUgraph graph))                                             \
    X(graph_add_kernel, cuGraphAddKernelNode_v2,                                                  \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count,                 \
       const KernelNodeParams* params))                                                           \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                             \
      (CUgraphExec * executable, CUgraph graph, unsigned long long flags))                        \
    X(graph_exec_destroy, cuGraphExecDestroy, (CUgraphExec executable))                           \
    X(graph_upload, cuGraphUpload, (CUgraphExec executable, CUstream stream))                     \
    X(graph_launch, cuGraphLaunch, (CUgraphExec executable, CUstream stream))                     \
    X(error_name, cuGetErrorName, (CUresult error, const char** text))                            \
    X(error_string, cuGetErrorString, (CUresult error, const char** text))

struct DriverApi {
#define MUSER_CUDA_POINTER(member, symbol, parameters) CUresult(*member) parameters = nullptr;
    MUSER_CUDA_CALLS(MUSER_CUDA_POINTER)
#undef MUSER_CUDA_POINTER
    // Since driver 12.3; null before: then edges are full ones.
    CUresult (*graph_add_edges)(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                const GraphEdgeData* data, size_t count) = nullptr;
    // Likewise: how many edges a graph has.
    CUresult (*graph_edges)(CUgraph graph, CUgraphNode* from, CUgraphNode* to, GraphEdgeData* data,
                            size_t* count) = nullptr;
    int version = 0;  // 1000 * major + 10 * minor
};

// The driver, opened and initialised on first use. DeviceError says why there is none: no libcuda,
// one that is too old, or one that reports no usable GPU.
const DriverApi& driver();

// "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered".
std::string error_text(CUresult error);

}  // namespace muser::device::cuda
