// Attention of a decode step as one launch.
#include <algorithm>
#include <cstring>

#include "device/cuda/kernels.h"
#include "device/cuda/launch_reads.h"
#include "metal/kernels/args.h"
#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {
namespace {

using stream::CommandBuffer;
using stream::Dispatch;

bool has_form(const Dispatch& dispatch, LaunchForm form) {
    const auto* kernel = dynamic_cast<const CudaKernel*>(dispatch.kernel.get());
    return kernel != nullptr && kernel->form == form;
}

bool touches(const CommandBuffer& commands, const Dispatch& dispatch,
             const stream::Buffer* buffer) {
    for (uint32_t b = 0; b < dispatch.binding_count; ++b) {
        if (commands.bindings[dispatch.first_binding + b].buffer.get() == buffer) return true;
    }
    return false;
}

const stream::Buffer* buffer_of(const CommandBuffer& commands, const Dispatch& dispatch,
                                uint32_t argument) {
    for (uint32_t b = 0; b < dispatch.binding_count; ++b) {
        const stream::Binding& binding = commands.bindings[dispatch.first_binding + b];
        if (binding.argument == argument) return binding.buffer.get();
    }
    return nullptr;
}

// The three dispatches of one layer's attention, with what they say in common.
struct Trio {
    const Dispatch& store;
    const Dispatch& chunks;
    const Dispatch& combine;
    QkStoreArgs store_args;
    AttendArgs args, combine_args;
};
Trio trio_at(const CommandBuffer& commands, uint32_t d) {
    const Dispatch& store = commands.dispatches[d];
    const Dispatch& chunks = commands.dispatches[d + 1];
    const Dispatch& combine = commands.dispatches[d + 2];
    return {store,
            chunks,
            combine,
            arguments<QkStoreArgs>(commands, store),
            arguments<AttendArgs>(commands, chunks),
            arguments<AttendArgs>(commands, combine)};
}

}  // namespace

uint32_t KernelLibrary::in_turn(const CommandBuffer& commands, uint32_t d) const {
    if (d + 3 > commands.dispatches.size()) return 1;
    if (!has_form(commands.dispatches[d], LaunchForm::qk_store) ||
        !has_form(commands.dispatches[d + 1], LaunchForm::attend) ||
        !has_form(commands.dispatches[d + 2], LaunchForm::combine_gate)) {
        return 1;
    }
    const Trio trio = trio_at(commands, d);
    const AttendArgs& args = trio.args;
    const bool shape = args.head_dim == kHeadDim &&
                       queries_of_block(args.heads, args.kv_heads) != 0 &&
                       args.capacity / MUSER_CHUNK + 2 <= kMostChunks;
    // A block for each pair of heads waits for the others; two at least share a multiprocessor.
    const bool room = args.heads / 2 < 2 * static_cast<uint32_t>(gpu_->multiprocessors);
    const auto same = [](const AttendArgs& a, const auto& b) {
        return a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim &&
               a.view == b.view;
    };
    const auto at = [&](const Dispatch& dispatch, uint32_t argument) {
        return address_of(commands, dispatch, argument);
    };
    // q, K and V of the store are those of the chunks, whose partials are combined.
    const bool one =
        at(trio.store, 1) == at(trio.chunks, 1) && at(trio.store, 4) == at(trio.chunks, 2) &&
        at(trio.store, 7) == at(trio.chunks, 3) && at(trio.store, 8) == at(trio.chunks, 4) &&
        at(trio.chunks, 1) == at(trio.combine, 1) && at(trio.chunks, 5) == at(trio.combine, 2);
    return shape && room && one && same(args, trio.store_args) && same(args, trio.combine_args) ? 3
                                                                                                : 1;
}

PreparedLaunch KernelLibrary::prepare_attention(const CommandBuffer& commands, const Launch& launch,
                                                Used& used) const {
    const uint32_t first = launch.dispatches.front();
    const Trio trio = trio_at(commands, first);
    const auto at = [&](const Dispatch& dispatch, uint32_t argument) {
        return address_of(commands, dispatch, argument);
    };
    MuserAttentionArgs all{};
    all.step = at(trio.store, 1);
    all.q_weight = at(trio.store, 2);
    all.k_weight = at(trio.store, 3);
    all.q = at(trio.store, 4);
    all.k = at(trio.store, 5);
    all.v = at(trio.store, 6);
    all.plane_k = at(trio.store, 7);
    all.plane_v = at(trio.store, 8);
    all.journal_k = at(trio.store, 9);
    all.journal_v = at(trio.store, 10);
    all.partials = at(trio.chunks, 5);
    all.gate = at(trio.combine, 3);
    all.attention = at(trio.combine, 4);
    all.form = at(trio.combine, 5);
    all.heads = trio.args.heads;
    all.kv_heads = trio.args.kv_heads;
    all.view = trio.args.view;
    all.capacity = trio.args.capacity;
    all.journal = trio.store_args.journal;
    all.rope = trio.store_args.rope;
    all.blocks = trio.combine_args.blocks;
    all.eps = trio.store_args.eps;
    all.scale = trio.args.scale;
    all.early = 1;
    for (const uint32_t plane : {7u, 8u}) {
        const stream::Buffer* buffer = buffer_of(commands, trio.store, plane);
        for (uint32_t d = 0; d < first; ++d) {
            if (touches(commands, commands.dispatches[d], buffer)) all.early = 0;
        }
    }
    const uint32_t groups = all.heads / queries_of_block(all.heads, all.kv_heads);
    all.counters = take_counters(groups + 1, used);
    if (launch.counts_products) {
        all.done = used.done;
        all.groups = used.done_groups;
        all.gates = used.gates;
    }

    PreparedLaunch out;
    out.function = store_attend_;
    out.grid = {trio.chunks.groups.x * groups + all.heads / 2, 1, 1};
    out.block = {32 * MUSER_ATTEND_WARPS, 1, 1};
    out.storage.resize(sizeof all);
    std::memcpy(out.storage.data(), &all, sizeof all);
    out.params = {out.storage.data()};
    return out;
}

void KernelLibrary::add_rows(const CommandBuffer& commands, uint32_t attention,
                             MuserProductArgs& args) {
    const Trio trio = trio_at(commands, attention);
    const uint64_t bound = uint64_t{trio.chunks.groups.x} * MUSER_CHUNK;  // keys of the recording
    args.rows[0] = address_of(commands, trio.store, 7);
    args.rows[1] = address_of(commands, trio.store, 8);
    args.row_bytes =
        std::min<uint64_t>(bound, trio.args.capacity) * trio.args.kv_heads * kHeadDim * 2;
}

bool KernelLibrary::is_gate_of(const CommandBuffer& commands, uint32_t d,
                               uint32_t attention) const {
    const Dispatch& product = commands.dispatches[d];
    if (!has_form(product, LaunchForm::product) || in_turn(commands, attention) != 3) return false;
    const Trio trio = trio_at(commands, attention);
    // Attention counts its groups of rows by pairs of heads, and ends before all of it is done.
    if (arguments<MatVecArgs>(commands, product).rows != trio.args.heads * kHeadDim) return false;
    const uint64_t read = address_of(commands, product, 2);
    if (read == address_of(commands, trio.chunks, 5) ||
        read == address_of(commands, trio.combine, 4) ||
        read == address_of(commands, trio.combine, 5)) {
        return false;
    }
    const uint64_t made = address_of(commands, product, 3);
    for (const uint32_t argument : {4u, 5u, 6u}) {
        if (address_of(commands, trio.store, argument) == made) return false;
    }
    return made == address_of(commands, trio.combine, 3);
}

}  // namespace muser::device::cuda
