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

// Consecutive dispatches that become one launch: they follow the same dispatches and nothing asks
// for an order between them, or each follows only the one in front and the launch keeps their
// order.
struct Launch {
    std::vector<uint32_t> dispatches;
    std::vector<uint32_t> after;  // launches, ascending
    // Products that attention, two launches further, counts by itself; a product that only its
    // combination needs, in between; and that attention.
    bool counted = false, beside_attention = false, counts_products = false;
    uint32_t attention = 0;  // counted: the first dispatch of that attention
};
// What kernels can do. `beside(first, d)`: whether d may join the others; `in_turn(d)`: how many
// dispatches from d on are one launch if each follows the one in front (1: just it).
template <class Beside, class InTurn>
std::vector<Launch> launches_of(const Order& order, Beside&& beside, InTurn&& in_turn) {
    std::vector<Launch> launches;
    std::vector<uint32_t> launch_of(order.after.size());
    const auto count = static_cast<uint32_t>(order.after.size());
    for (uint32_t d = 0; d < count;) {
        if (!launches.empty()) {
            const uint32_t first = launches.back().dispatches.front();
            if (order.after[d] == order.after[first] && beside(launches.back().dispatches, d)) {
                launch_of[d] = static_cast<uint32_t>(launches.size() - 1);
                launches.back().dispatches.push_back(d);
                ++d;
                continue;
            }
        }
        Launch launch{{d}, {}};
        for (const uint32_t before : order.after[d]) {
            const uint32_t other = launch_of[before];
            if (launch.after.empty() || launch.after.back() != other) launch.after.push_back(other);
        }
        uint32_t past = d + in_turn(d);
        for (uint32_t next = d + 1; next < past; ++next) {
            if (order.after[next] != std::vector<uint32_t>{next - 1}) past = d + 1;
        }
        for (uint32_t next = d + 1; next < past; ++next) launch.dispatches.push_back(next);
        for (; d < past; ++d) launch_of[d] = static_cast<uint32_t>(launches.size());
        launches.push_back(std::move(launch));
    }
    return launches;
}

// Where products share a launch and only attention follows it, those that `only_at_its_end(product,
// attention)` needs get a launch of their own between the two, so that attention can begin before
// they are done.
template <class OnlyAtItsEnd>
void part_products(std::vector<Launch>& launches, OnlyAtItsEnd&& only_at_its_end) {
    std::vector<uint32_t> followers(launches.size());
    for (const Launch& launch : launches) {
        for (const uint32_t before : launch.after) ++followers[before];
    }
    std::vector<Launch> out;
    std::vector<uint32_t> moved(launches.size());  // the launch that is behind all of the old one
    for (uint32_t i = 0; i < launches.size(); ++i) {
        Launch& launch = launches[i];
        for (uint32_t& before : launch.after) before = moved[before];
        const bool one = launch.dispatches.size() > 1 && i + 1 < launches.size() &&
                         launches[i + 1].dispatches.size() > 1 && followers[i] == 1 &&
                         launches[i + 1].after == std::vector<uint32_t>{i};
        Launch late;
        if (one) {
            const uint32_t attention = launches[i + 1].dispatches.front();
            std::erase_if(launch.dispatches, [&](uint32_t d) {
                if (!only_at_its_end(d, attention)) return false;
                late.dispatches.push_back(d);
                return true;
            });
        }
        if (late.dispatches.empty() || launch.dispatches.empty()) {
            launch.dispatches.insert(launch.dispatches.end(), late.dispatches.begin(),
                                     late.dispatches.end());
            moved[i] = static_cast<uint32_t>(out.size());
            out.push_back(std::move(launch));
            continue;
        }
        launch.counted = true;
        launch.attention = launches[i + 1].dispatches.front();
        late.beside_attention = true;
        launches[i + 1].counts_products = true;
        late.after = {static_cast<uint32_t>(out.size())};
        out.push_back(std::move(launch));
        moved[i] = static_cast<uint32_t>(out.size());
        out.push_back(std::move(late));
    }
    launches = std::move(out);
}

}  // namespace muser::device::cuda
