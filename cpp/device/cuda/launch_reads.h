// What a launch reads off a recorded dispatch: its kernel, arguments and addresses.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "device/cuda/kernels.h"
#include "errors.h"
#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {

// What the kernels of metal/kernels/cuda/attention_128.cuh are written for.
inline constexpr uint32_t kHeadDim = MUSER_ATTEND_HEAD_DIM, kMostQueries = MUSER_ATTEND_QUERIES,
                          kMostChunks = MUSER_ATTEND_MOST_CHUNKS;

// Query heads of one of their blocks, which have one KV head; 0 where heads do not come out even.
inline uint32_t queries_of_block(uint32_t heads, uint32_t kv_heads) {
    if (kv_heads == 0 || heads % kv_heads != 0) return 0;
    const uint32_t queries = std::min(heads / kv_heads, kMostQueries);
    return queries % 2 == 0 && heads / kv_heads % queries == 0 ? queries : 0;
}

[[noreturn]] inline void refuse(const stream::Dispatch& dispatch, const std::string& what) {
    const std::string kernel = dispatch.kernel ? dispatch.kernel->name : "?";
    throw DeviceError("kernel '" + kernel + "': " + what, {{"device", "cuda"}, {"kernel", kernel}});
}

inline const CudaKernel& kernel_of(const stream::Dispatch& dispatch) {
    const auto* kernel = dynamic_cast<const CudaKernel*>(dispatch.kernel.get());
    if (kernel == nullptr) refuse(dispatch, "it was not made by the cuda device");
    return *kernel;
}

inline uint64_t address_of(const stream::CommandBuffer& commands, const stream::Dispatch& dispatch,
                           uint32_t argument) {
    for (uint32_t b = 0; b < dispatch.binding_count; ++b) {
        const stream::Binding& binding = commands.bindings[dispatch.first_binding + b];
        if (binding.argument != argument) continue;
        if (!binding.buffer || binding.buffer->device_address == 0) {
            refuse(dispatch, "argument " + std::to_string(argument) + " has no device memory");
        }
        if (binding.offset > binding.buffer->length) {
            refuse(dispatch, "argument " + std::to_string(argument) + ": offset " +
                                 std::to_string(binding.offset) + " is past the buffer's " +
                                 std::to_string(binding.buffer->length) + " bytes");
        }
        return binding.buffer->device_address + binding.offset;
    }
    return 0;  // optional arguments at the end of a list may be left unbound
}

template <class Args>
Args arguments(const stream::CommandBuffer& commands, const stream::Dispatch& dispatch) {
    if (dispatch.args_length != sizeof(Args)) {
        refuse(dispatch, "its arguments are " + std::to_string(dispatch.args_length) +
                             " bytes, not " + std::to_string(sizeof(Args)));
    }
    Args args;
    std::memcpy(&args, commands.arguments(dispatch), sizeof args);
    return args;
}

}  // namespace muser::device::cuda
