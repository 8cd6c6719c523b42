#include "device/cuda/graph_cache.h"

#include <cstring>

#include "errors.h"

namespace muser::device::cuda {
namespace {

class Hasher {
  public:
    void add(uint64_t word) {
        first_ = mix(first_ ^ word);
        second_ = (second_ + word) * 0x9fb21c651e98df25ull;
        second_ ^= second_ >> 29;
    }
    void add(const std::byte* bytes, size_t length) {
        add(length);
        for (; length >= 8; bytes += 8, length -= 8) {
            uint64_t word;
            std::memcpy(&word, bytes, 8);
            add(word);
        }
        uint64_t rest = 0;
        if (length > 0) std::memcpy(&rest, bytes, length);
        add(rest);
    }
    RecordingKey key() const { return {mix(first_), mix(second_)}; }

  private:
    static uint64_t mix(uint64_t x) {
        x ^= x >> 32;
        x *= 0xd6e8feb86659fd93ull;
        return x ^ (x >> 32);
    }
    uint64_t first_ = 0x243f6a8885a308d3ull, second_ = 0x13198a2e03707344ull;
};

uint64_t pair(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

// The driver's graph has the edges that the recording asks for, and no others.
void check_edges(const DriverApi& api, CUgraph graph, const Program& program) {
    if (api.graph_edges == nullptr) return;
    size_t expected = 0;
    for (const Launch& launch : program.order) expected += launch.after.size();
    size_t found = 0;
    check(api.graph_edges(graph, nullptr, nullptr, nullptr, &found), "cuGraphGetEdges");
    if (found == expected) return;
    throw DeviceError("the CUDA graph has " + std::to_string(found) + " edges, the recording " +
                          std::to_string(expected),
                      {{"device", "cuda"},
                       {"found", std::to_string(found)},
                       {"expected", std::to_string(expected)}});
}

// A programmatic edge lets a kernel start while the one in front runs; it waits by itself before
// it touches what others write. Kept to one edge in, one edge out.
bool may_overlap(const Program& program, const std::vector<uint32_t>& followers, uint32_t launch) {
    const auto& after = program.order[launch].after;
    return after.size() == 1 && followers[after.front()] == 1;
}

}  // namespace

RecordingKey key_of(const stream::CommandBuffer& commands) {
    Hasher hash;
    for (const stream::Encoder& encoder : commands.encoders) {
        hash.add(pair(encoder.first_command * 2 + encoder.concurrent, encoder.command_count));
    }
    for (const stream::Command& command : commands.commands) {
        if (command.kind == stream::Command::Kind::barrier) {
            const stream::Barrier& barrier = commands.barriers[command.index];
            hash.add(pair(0xffffffffu, barrier.all_buffers ? 0 : barrier.resource_count));
            for (uint32_t r = 0; r < barrier.resource_count; ++r) {
                hash.add(commands.resources[barrier.first_resource + r]->device_address);
            }
            continue;
        }
        const stream::Dispatch& d = commands.dispatches[command.index];
        hash.add(reinterpret_cast<uint64_t>(d.kernel.get()));
        hash.add(pair(d.groups.x, d.groups.y));
        hash.add(pair(d.groups.z, d.threads.x));
        hash.add(pair(d.threads.y, d.threads.z));
        for (uint32_t b = 0; b < d.binding_count; ++b) {
            const stream::Binding& binding = commands.bindings[d.first_binding + b];
            hash.add(binding.argument);
            hash.add(binding.buffer->device_address + binding.offset);
        }
        hash.add(commands.arguments(d), d.args_length);
    }
    return hash.key();
}

Program make_program(const KernelLibrary& library, const stream::CommandBuffer& commands,
                     bool merge) {
    Program program;
    program.order = launches_of(
        order_of(commands),
        [&](const std::vector<uint32_t>& others, uint32_t d) {
            return merge && KernelLibrary::mergeable(commands, others, d);
        },
        [&](uint32_t d) { return merge ? library.in_turn(commands, d) : 1; });
    part_products(program.order, [&](uint32_t product, uint32_t attention) {
        return library.is_gate_of(commands, product, attention);
    });
    KernelLibrary::Used used;
    for (const Launch& launch : program.order) {
        program.launches.push_back(library.prepare(commands, launch, used));
    }
    return program;
}

GraphCache::~GraphCache() {
    try {
        gpu_->use();
        for (const Entry& entry : entries_) gpu_->api->graph_exec_destroy(entry.graph);
    } catch (const Error&) {  // the context is gone, and its graphs with it
    }
}

CUgraphExec GraphCache::graph(const KernelLibrary& library, const stream::CommandBuffer& commands) {
    const RecordingKey key = key_of(commands);
    if (const auto found = found_.find(key); found != found_.end()) {
        entries_.splice(entries_.begin(), entries_, found->second);
        return found->second->graph;
    }
    Entry entry{key, build(library, commands), {}};
    for (const stream::Binding& binding : commands.bindings) {
        if (entry.buffers.empty() || entry.buffers.back() != binding.buffer) {
            entry.buffers.push_back(binding.buffer);
        }
    }
    entries_.push_front(std::move(entry));
    found_[key] = entries_.begin();
    if (entries_.size() > most_) {
        // In flight it stays: the driver destroys an executable graph after its last launch.
        gpu_->api->graph_exec_destroy(entries_.back().graph);
        found_.erase(entries_.back().key);
        entries_.pop_back();
    }
    return entries_.front().graph;
}

CUgraphExec GraphCache::build(const KernelLibrary& library,
                              const stream::CommandBuffer& commands) const {
    const DriverApi& api = *gpu_->api;
    Program program = make_program(library, commands, true);
    std::vector<uint32_t> followers(program.order.size());
    for (const Launch& launch : program.order) {
        for (const uint32_t before : launch.after) ++followers[before];
    }
    const bool overlap = gpu_->major >= 9 && api.graph_add_edges != nullptr;

    CUgraph graph = nullptr;
    check(api.graph_create(&graph, 0), "cuGraphCreate");
    const std::shared_ptr<CUgraph_st> owned(graph, [&](CUgraph g) { api.graph_destroy(g); });
    std::vector<CUgraphNode> nodes(program.order.size());
    for (uint32_t i = 0; i < program.order.size(); ++i) {
        PreparedLaunch& launch = program.launches[i];
        KernelNodeParams params;
        params.function = launch.function;
        params.grid_x = launch.grid[0];
        params.grid_y = launch.grid[1];
        params.grid_z = launch.grid[2];
        params.block_x = launch.block[0];
        params.block_y = launch.block[1];
        params.block_z = launch.block[2];
        params.shared_bytes = launch.shared_bytes;
        params.params = launch.params.data();
        const bool programmatic = overlap && may_overlap(program, followers, i);
        std::vector<CUgraphNode> after;
        for (const uint32_t before : program.order[i].after) after.push_back(nodes[before]);
        check(api.graph_add_kernel(&nodes[i], graph, programmatic ? nullptr : after.data(),
                                   programmatic ? 0 : after.size(), &params),
              "cuGraphAddKernelNode");
        if (programmatic) {
            const GraphEdgeData edge{kPortProgrammatic, 0, kEdgeProgrammatic, {}};
            check(api.graph_add_edges(graph, after.data(), &nodes[i], &edge, 1),
                  "cuGraphAddDependencies");
        }
    }
    check_edges(api, graph, program);
    CUgraphExec executable = nullptr;
    check(api.graph_instantiate(&executable, graph, 0), "cuGraphInstantiate");
    return executable;
}

}  // namespace muser::device::cuda
