#import "metal/spare_weights.h"

#include <algorithm>

#include "errors.h"

namespace muser {
namespace {

// The same bytes in the same layout, through the host in pieces: a device's memory may be its own.
DeviceWeight copy_of(Context& context, const DeviceWeight& from) {
    DeviceWeight copy = from;
    copy.offset = 0;
    copy.buffer =
        context.make_buffer("spare of " + from.buffer.label, from.bytes, Placement::device);
    std::vector<std::byte> piece(std::min<uint64_t>(from.bytes, uint64_t{16} << 20));
    for (uint64_t at = 0; at < from.bytes; at += piece.size()) {
        const uint64_t length = std::min<uint64_t>(piece.size(), from.bytes - at);
        context.read(from.buffer, from.offset + at, piece.data(), length);
        context.write(copy.buffer, at, piece.data(), length);
    }
    return copy;
}

}  // namespace

SpareWeights::Pool* SpareWeights::find(const DeviceWeight& weight) {
    for (Pool& pool : pools_) {
        if (pool.type == weight.type && pool.rows == weight.rows && pool.cols == weight.cols &&
            pool.layout == weight.layout) {
            return &pool;
        }
    }
    return nullptr;
}

void SpareWeights::prepare(Context& context, const std::vector<const DeviceWeight*>& stage,
                           int extra) {
    uint64_t stage_bytes = 0;
    std::vector<std::pair<Pool*, std::vector<const DeviceWeight*>>> kinds;
    for (const DeviceWeight* weight : stage) {
        stage_bytes += weight->bytes;
        if (extra == 0 || large(*weight)) continue;
        Pool* pool = find(*weight);
        if (pool == nullptr) {
            pools_.push_back({weight->type, weight->rows, weight->cols, weight->layout, {}});
            pool = &pools_.back();
        }
        const auto known = std::find_if(kinds.begin(), kinds.end(),
                                        [&](const auto& kind) { return kind.first == pool; });
        if (known == kinds.end()) {
            kinds.push_back({pool, {weight}});
        } else {
            known->second.push_back(weight);
        }
    }
    for (auto& [pool, weights] : kinds) {
        // In the time that a repetition of all layers takes one copy for each of `weights`, it
        // reads stage_bytes. No more copies than uses: then each is read once a token, as the
        // model's own weights are.
        const uint64_t uses = weights.size() * static_cast<uint64_t>(extra);
        const uint64_t cold = (cold_bytes_ * weights.size() + stage_bytes - 1) / stage_bytes;
        const uint64_t wanted = std::min(uses, cold);
        while (pool->copies.size() < wanted) {
            pool->copies.push_back(
                copy_of(context, *weights[pool->copies.size() % weights.size()]));
        }
    }
}

void SpareWeights::rewind() {
    for (Pool& pool : pools_) pool.at = 0;
}

const DeviceWeight& SpareWeights::next(const DeviceWeight& own) {
    if (large(own)) return own;
    Pool* pool = find(own);
    if (pool == nullptr || pool->copies.empty()) {
        throw ConfigError("no spare of " + own.buffer.label + " was made",
                          {{"tensor", own.buffer.label}});
    }
    const DeviceWeight& copy = pool->copies[pool->at % pool->copies.size()];
    ++pool->at;
    return copy;
}

uint64_t SpareWeights::bytes() const {
    uint64_t sum = 0;
    for (const Pool& pool : pools_) {
        for (const DeviceWeight& copy : pool.copies) sum += copy.bytes;
    }
    return sum;
}

}  // namespace muser
