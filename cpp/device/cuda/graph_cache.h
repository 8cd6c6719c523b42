// Recordings as CUDA graphs, kept and replayed: two tokens with the same phase and slot have the
// same recording, and with it the same graph.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "device/cuda/kernels.h"
#include "device/cuda/order.h"

namespace muser::device::cuda {

// Two independent 64-bit hashes over everything that a graph is made of: kernels, grids, argument
// bytes, bound addresses, barriers.
struct RecordingKey {
    uint64_t first = 0, second = 0;
    bool operator==(const RecordingKey&) const = default;
};
RecordingKey key_of(const stream::CommandBuffer& commands);

// The launches of a recording in an order that respects `after`.
struct Program {
    std::vector<Launch> order;
    std::vector<PreparedLaunch> launches;
};
Program make_program(const KernelLibrary& library, const stream::CommandBuffer& commands,
                     bool merge);

class GraphCache {
  public:
    GraphCache(GpuRef gpu, size_t most) : gpu_(std::move(gpu)), most_(most) {}
    ~GraphCache();
    GraphCache(const GraphCache&) = delete;
    GraphCache& operator=(const GraphCache&) = delete;

    // The graph of a recording, made on first use. It may be evicted by the next call.
    CUgraphExec graph(const KernelLibrary& library, const stream::CommandBuffer& commands);

  private:
    struct Entry {
        RecordingKey key;
        CUgraphExec graph = nullptr;
        // The kernels' names stand for addresses: what they are of must stay.
        std::vector<stream::BufferRef> buffers;
    };
    struct Hash {
        size_t operator()(const RecordingKey& key) const { return key.first; }
    };
    CUgraphExec build(const KernelLibrary& library, const stream::CommandBuffer& commands) const;

    GpuRef gpu_;
    size_t most_;
    std::list<Entry> entries_;  // most recently used first
    std::unordered_map<RecordingKey, std::list<Entry>::iterator, Hash> found_;
};

}  // namespace muser::device::cuda
