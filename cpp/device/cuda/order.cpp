#include "device/cuda/order.h"

#include <algorithm>

namespace muser::device::cuda {
namespace {

using stream::Barrier;
using stream::Command;
using stream::CommandBuffer;

bool touches(const CommandBuffer& commands, uint32_t dispatch, const Barrier& barrier) {
    const stream::Dispatch& d = commands.dispatches[dispatch];
    for (uint32_t b = 0; b < d.binding_count; ++b) {
        const stream::Buffer* bound = commands.bindings[d.first_binding + b].buffer.get();
        for (uint32_t r = 0; r < barrier.resource_count; ++r) {
            if (commands.resources[barrier.first_resource + r].get() == bound) return true;
        }
    }
    return false;
}

// Walks the commands and keeps the epoch: what was encoded since the last barrier on everything.
class Walk {
  public:
    explicit Walk(const CommandBuffer& commands) : commands_(commands) {
        order_.after.resize(commands.dispatches.size());
        followed_.resize(commands.dispatches.size());
    }

    void dispatch(uint32_t d) {
        std::vector<uint32_t>& after = order_.after[d];
        for (const uint32_t before : previous_) after.push_back(before);
        for (const auto& [barrier, end] : targeted_) {
            if (!touches(commands_, d, *barrier)) continue;
            for (size_t i = 0; i < end; ++i) {
                if (touches(commands_, epoch_[i], *barrier)) after.push_back(epoch_[i]);
            }
        }
        std::sort(after.begin(), after.end());
        after.erase(std::unique(after.begin(), after.end()), after.end());
        // A dispatch of the epoch before is implied by one of this epoch, which follows it too.
        const bool within = !epoch_.empty() && !after.empty() && after.back() >= epoch_.front();
        if (within) std::erase_if(after, [&](uint32_t a) { return a < epoch_.front(); });
        for (const uint32_t before : after) followed_[before] = true;
        epoch_.push_back(d);
    }

    void barrier(const Barrier& barrier) {
        if (barrier.all_buffers) {
            end_epoch();
        } else {
            targeted_.emplace_back(&barrier, epoch_.size());
        }
    }

    void end_epoch() {
        if (epoch_.empty()) return;  // two barriers in a row are one
        previous_.clear();
        for (const uint32_t d : epoch_) {
            if (!followed_[d]) previous_.push_back(d);
        }
        epoch_.clear();
        targeted_.clear();
    }

    Order take() { return std::move(order_); }

  private:
    const CommandBuffer& commands_;
    Order order_;
    std::vector<bool> followed_;  // by a dispatch of its own epoch
    std::vector<uint32_t> previous_, epoch_;
    std::vector<std::pair<const Barrier*, size_t>>
        targeted_;  // and how much of the epoch is before
};

}  // namespace

uint64_t Order::edges() const {
    uint64_t count = 0;
    for (const auto& before : after) count += before.size();
    return count;
}

Order order_of(const CommandBuffer& commands) {
    Walk walk(commands);
    for (const stream::Encoder& encoder : commands.encoders) {
        for (uint32_t i = 0; i < encoder.command_count; ++i) {
            const Command& command = commands.commands[encoder.first_command + i];
            if (command.kind == Command::Kind::barrier) {
                walk.barrier(commands.barriers[command.index]);
                continue;
            }
            walk.dispatch(command.index);
            if (!encoder.concurrent) walk.end_epoch();
        }
        walk.end_epoch();
    }
    return walk.take();
}

}  // namespace muser::device::cuda
