// The compiled kernels of one device, and how a dispatch becomes a CUDA launch.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/command_stream.h"
#include "device/cuda/gpu.h"
#include "device/cuda/layout.h"

namespace muser::device::cuda {

// A launch ready for the driver. Moving it keeps `params` valid: they point into the heap.
struct PreparedLaunch {
    CUfunction function = nullptr;
    std::array<unsigned, 3> grid{1, 1, 1}, block{1, 1, 1};
    unsigned shared_bytes = 0;
    std::vector<std::byte> storage;
    std::vector<void*> params;
};

enum class LaunchForm : uint8_t {
    catalogue,  // the portable kernel, with the grid that the dispatch names
    // Kernels with a form of this device's own for some shapes, the same arguments and bits:
    norm_boundary,
    attend,
    combine_gate,
    qk_store,
    embed,
    product,  // over interleaved rows; several may share a launch
    silu_product,
};

struct CudaKernel : stream::Kernel {
    LaunchForm form = LaunchForm::catalogue;
    CUfunction function = nullptr;
    CUfunction fast = nullptr;        // the device's own form
    const R32Shape* shape = nullptr;  // products
    uint32_t buffers = 0;
};

// The loaded module and the memory that its kernels keep between launches.
class KernelLibrary {
  public:
    KernelLibrary(GpuRef gpu, const std::string& code);
    ~KernelLibrary();
    KernelLibrary(const KernelLibrary&) = delete;
    KernelLibrary& operator=(const KernelLibrary&) = delete;

    // Null for a name that the catalogue or the module does not have.
    std::shared_ptr<const CudaKernel> find(std::string_view name) const;
    CUfunction repack() const { return repack_; }

    // Whether dispatch d may join the launch of the others, which follow the same dispatches.
    static bool mergeable(const stream::CommandBuffer& commands,
                          const std::vector<uint32_t>& others, uint32_t d);
    // `used_counters` runs over the launches of a command buffer. DeviceError naming kernel and
    // argument for a dispatch that cannot run.
    PreparedLaunch prepare(const stream::CommandBuffer& commands,
                           const std::vector<uint32_t>& dispatches, uint32_t& used_counters) const;

  private:
    CUfunction function(const std::string& name) const;  // null: not there
    PreparedLaunch prepare_catalogue(const stream::CommandBuffer& commands,
                                     const stream::Dispatch& dispatch) const;
    void choose_form(const stream::CommandBuffer& commands, const stream::Dispatch& dispatch,
                     PreparedLaunch& launch) const;
    PreparedLaunch prepare_products(const stream::CommandBuffer& commands,
                                    const std::vector<uint32_t>& dispatches,
                                    uint32_t& used_counters) const;

    GpuRef gpu_;
    CUmodule module_ = nullptr;
    CUfunction repack_ = nullptr, products_ = nullptr, wide_ = nullptr, silu_ = nullptr;
    DeviceMemory counters_;  // of the silu products; zero between launches
};

// How a product's blocks use the multiprocessor: warps, superblocks between two combinations, and
// shared memory. For tests apart from the library.
struct ProductPlan {
    uint32_t warps = 2, span = 2, stage_bytes = 0, shared_bytes = 0;
};
// blocks: superblocks of a row; pieces, pairs: the most of the launch's types; groups: of rows that
// a block takes, 1 or 2.
ProductPlan plan_product(uint32_t blocks, uint32_t pieces, uint32_t pairs, uint32_t groups,
                         uint32_t shared_limit);

}  // namespace muser::device::cuda
