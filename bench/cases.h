// What muser_bench measures: every kernel of the catalogue at the model's own shapes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "metal/kernels/args.h"

namespace muser::bench {

// Muse Glimmer 30B.
inline constexpr uint32_t kHidden = 6656, kFfn = 19968, kHeads = 32, kKvHeads = 2, kHeadDim = 128;
inline constexpr uint32_t kWindow = 2048, kVocab = 202048;

using BufferRef = std::shared_ptr<stream::Buffer>;

struct Bound {
    BufferRef buffer;
    uint64_t offset = 0;
};

// One kernel with its arguments, ready to be recorded any number of times.
struct Prepared {
    std::string kernel;
    std::vector<std::byte> args;
    // What one dispatch binds from index 1; `turn` lets a matrix move through memory that no cache
    // holds.
    std::function<std::vector<Bound>(uint64_t turn)> buffers;
    double bytes = 0;  // that one dispatch reads and writes, each counted once
};

struct Case {
    std::string name;
    std::function<Prepared(device::Device&)> prepare;
};

std::vector<Case> kernel_cases();
std::vector<Case> product_cases();

template <class Args>
std::vector<std::byte> as_args(const Args& args) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&args);
    return {bytes, bytes + sizeof args};
}

BufferRef memory(device::Device& device, uint64_t bytes);
// Pseudo-random f32 in [-1, 1).
BufferRef vector(device::Device& device, uint64_t n);
// The block form of such a vector, as the device's own kernel makes it from ones.
BufferRef block_form(device::Device& device, uint64_t n);

}  // namespace muser::bench
