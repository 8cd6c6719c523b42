#include "audit/order_edges.h"

#include <algorithm>
#include <vector>

namespace muser::audit {
namespace {

struct At {
    uint32_t dispatch = 0, encoder = 0, position = 0;
};

bool touches(const Dispatch& dispatch, const Barrier& barrier) {
    return std::any_of(dispatch.uses.begin(), dispatch.uses.end(), [&](const Use& use) {
        return std::find(barrier.objects.begin(), barrier.objects.end(), use.object) !=
               barrier.objects.end();
    });
}

bool ordered(const Trace& trace, const CommandBuffer& commands, const At& first, const At& second) {
    if (first.encoder != second.encoder) return true;
    const Encoder& encoder = commands.encoders[first.encoder];
    if (!encoder.concurrent) return true;
    for (uint32_t c = first.position + 1; c < second.position; ++c) {
        if (encoder.commands[c].kind != Command::Kind::barrier) continue;
        const Barrier& barrier = trace.barriers[encoder.commands[c].index];
        if (barrier.broad || (touches(trace.dispatches[first.dispatch], barrier) &&
                              touches(trace.dispatches[second.dispatch], barrier))) {
            return true;
        }
    }
    return false;
}

uint64_t edges_of(const Trace& trace, const CommandBuffer& commands) {
    std::vector<At> all;
    for (uint32_t e = 0; e < commands.encoders.size(); ++e) {
        for (uint32_t c = 0; c < commands.encoders[e].commands.size(); ++c) {
            const Command& command = commands.encoders[e].commands[c];
            if (command.kind == Command::Kind::dispatch) all.push_back({command.index, e, c});
        }
    }
    // before[j][i]: i is before j by any chain. An edge is a pair that no third comes between.
    const size_t n = all.size();
    const size_t words = (n + 63) / 64;
    std::vector<std::vector<uint64_t>> before(n, std::vector<uint64_t>(words));
    uint64_t edges = 0;
    for (size_t j = 0; j < n; ++j) {
        // Nearest first, so that what a nearer one is behind needs no edge of its own.
        for (size_t i = j; i-- > 0;) {
            if ((before[j][i / 64] >> (i % 64) & 1) != 0) continue;
            if (!ordered(trace, commands, all[i], all[j])) continue;
            ++edges;
            before[j][i / 64] |= uint64_t{1} << (i % 64);
            for (size_t w = 0; w < words; ++w) before[j][w] |= before[i][w];
        }
    }
    return edges;
}

}  // namespace

uint64_t order_edges(const Trace& trace) {
    uint64_t edges = 0;
    for (const CommandBuffer& commands : trace.command_buffers) edges += edges_of(trace, commands);
    return edges;
}

}  // namespace muser::audit
