// What must be done before a dispatch may start, read off a recording: encoders and barriers, and
// nothing else. Knows no CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "device/command_stream.h"

namespace muser::device::cuda {

// For each dispatch of the recording the dispatches that it follows directly, ascending.
struct Order {
    std::vector<std::vector<uint32_t>> after;
    uint64_t edges() const;
};

// Serial encoder: each dispatch follows the one before it. Concurrent encoder: a barrier on all
// buffers puts what comes after it behind everything before it; a barrier on resources puts what
// touches one of them after it behind what touched it before. An encoder follows the one before it.
// Edges that others imply are left out where an epoch ends: only dispatches that nothing of their
// epoch follows are followed by the next epoch.
Order order_of(const stream::CommandBuffer& commands);

// Consecutive dispatches that may become one launch: they follow the same dispatches, and nothing
// asks for an order between them. `mergeable(first, other)` says whether their kernels can.
struct Launch {
    std::vector<uint32_t> dispatches;
    std::vector<uint32_t> after;  // launches, ascending
};
template <class Mergeable>
std::vector<Launch> launches_of(const Order& order, Mergeable&& mergeable) {
    std::vector<Launch> launches;
    std::vector<uint32_t> launch_of(order.after.size());
    for (uint32_t d = 0; d < order.after.size(); ++d) {
        if (!launches.empty()) {
            const uint32_t first = launches.back().dispatches.front();
            if (order.after[d] == order.after[first] && mergeable(launches.back().dispatches, d)) {
                launch_of[d] = static_cast<uint32_t>(launches.size() - 1);
                launches.back().dispatches.push_back(d);
                continue;
            }
        }
        launch_of[d] = static_cast<uint32_t>(launches.size());
        Launch launch{{d}, {}};
        for (const uint32_t before : order.after[d]) {
            const uint32_t other = launch_of[before];
            if (launch.after.empty() || launch.after.back() != other) launch.after.push_back(other);
        }
        launches.push_back(std::move(launch));
    }
    return launches;
}

}  // namespace muser::device::cuda
