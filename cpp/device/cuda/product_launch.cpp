// Products as launches: which of them, with how many blocks and what shared memory.
#include <algorithm>
#include <cstring>

#include "device/cuda/kernels.h"
#include "device/cuda/launch_reads.h"
#include "device/cuda/product_plan.h"
#include "metal/kernels/args.h"
#include "metal/kernels/cuda/launch_args.h"

namespace muser::device::cuda {

namespace {

// Two heads are one part of the gate.
constexpr uint32_t kRowsOfPair = 2 * kHeadDim, kGroupsOfPairShift = 3;
static_assert(kRowsOfPair == kGroupRows << kGroupsOfPairShift);

}  // namespace

using stream::CommandBuffer;
using stream::Dispatch;

PreparedLaunch KernelLibrary::prepare_products(const CommandBuffer& commands, const Launch& launch,
                                               Used& used) const {
    MuserProductArgs all{};
    ProductSize size;
    size.silu =
        kernel_of(commands.dispatches[launch.dispatches.front()]).form == LaunchForm::silu_product;
    for (const uint32_t d : launch.dispatches) {
        const Dispatch& dispatch = commands.dispatches[d];
        const R32Shape& shape = *kernel_of(dispatch).shape;
        const auto args = arguments<MatVecArgs>(commands, dispatch);
        MuserProductPart& part = all.part[all.parts++];
        uint32_t next = 1;
        part.weight = address_of(commands, dispatch, next++);
        if (size.silu) part.weight2 = address_of(commands, dispatch, next++);
        part.form = address_of(commands, dispatch, next++);
        part.y = address_of(commands, dispatch, next++);
        if (size.silu && args.blocks != 0) {
            part.y_form = address_of(commands, dispatch, next++);
            part.y_blocks = args.blocks;
            part.counters = take_counters(args.blocks * args.columns, used);
        }
        part.rows = args.rows;
        part.type = shape.type;
        part.first_group = size.groups;
        size.groups += (args.rows + kGroupRows - 1) / kGroupRows;
        size.superblocks = all.blocks = args.cols / 256;
        size.columns = args.columns;
        size.group_bytes = std::max(size.group_bytes, static_cast<uint32_t>(shape.group_bytes()));
        size.pairs = std::max(size.pairs, shape.pairs);
    }
    const GpuSize gpu{static_cast<uint32_t>(gpu_->multiprocessors),
                      static_cast<uint32_t>(gpu_->shared_bytes)};
    const ProductPlan plan = plan_product(size, gpu);
    uint32_t blocks = plan.blocks;
    if (plan.form == ProductForm::wide) {
        // Every matrix begins with a block of its own.
        size.groups = 0;
        for (uint32_t p = 0; p < all.parts; ++p) {
            all.part[p].first_group = size.groups;
            size.groups += (all.part[p].rows + 2 * kGroupRows - 1) / (2 * kGroupRows) * 2;
        }
        blocks = size.groups / 2;
    }
    all.place_bytes = size.group_bytes;
    all.span = plan.span;
    all.stages = plan.stages;

    // The head fills the GPU many times over; its first weights are as good as any.
    all.paced = plan.form == ProductForm::wide ? 1 : 2;
    all.done_shift = 31;
    if (launch.counted) {
        add_rows(commands, launch.attention, all);
        all.done = used.done = take_counters(2, used);
        all.tells = all.done + 4;
        used.done_groups = blocks * (plan.form == ProductForm::wide ? 2 : 1) * size.columns;
    }
    if (launch.beside_attention) {
        all.told = used.done + 4;
        const bool counts = plan.form != ProductForm::wide && size.columns == 1 && all.parts == 1 &&
                            all.part[0].rows % kRowsOfPair == 0;
        all.done = used.gates = counts ? take_counters(all.part[0].rows / kRowsOfPair, used) : 0;
        all.done_shift = kGroupsOfPairShift;
    }

    PreparedLaunch out;
    out.function = products_[static_cast<size_t>(plan.form)];
    out.grid = {blocks, size.columns, 1};
    out.block = {32 * plan.warps, 1, 1};
    out.shared_bytes = plan.shared_bytes;
    out.storage.resize(sizeof all);
    std::memcpy(out.storage.data(), &all, sizeof all);
    out.params = {out.storage.data()};
    return out;
}

}  // namespace muser::device::cuda
