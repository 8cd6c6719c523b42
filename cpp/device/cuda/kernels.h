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
#include "device/cuda/order.h"

struct MuserProductArgs;

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
    // How many dispatches from d on are one launch if each follows the one in front: 3 where norm,
    // store, attention and combination of one layer have a kernel together, else 1.
    uint32_t in_turn(const stream::CommandBuffer& commands, uint32_t d) const;
    // What the launches of a command buffer have taken of the counters, in turn; those far apart
    // may have the same.
    struct Used {
        uint32_t counters = 0;
        // Of products that attention counts: the address of their counter, and the count. Of the
        // gate's: the address of a counter for each 256 rows, or 0.
        uint64_t done = 0;
        uint32_t done_groups = 0;
        uint64_t gates = 0;
    };
    // DeviceError naming kernel and argument for a dispatch that cannot run.
    PreparedLaunch prepare(const stream::CommandBuffer& commands, const Launch& launch,
                           Used& used) const;
    // Whether the combination of the attention that begins at `attention` is the only one of its
    // three dispatches that reads what product d makes.
    bool is_gate_of(const stream::CommandBuffer& commands, uint32_t d, uint32_t attention) const;

  private:
    CUfunction function(const std::string& name) const;  // null: not there
    PreparedLaunch prepare_catalogue(const stream::CommandBuffer& commands,
                                     const stream::Dispatch& dispatch) const;
    void choose_form(const stream::CommandBuffer& commands, const stream::Dispatch& dispatch,
                     PreparedLaunch& launch) const;
    PreparedLaunch prepare_products(const stream::CommandBuffer& commands, const Launch& launch,
                                    Used& used) const;

    PreparedLaunch prepare_attention(const stream::CommandBuffer& commands, const Launch& launch,
                                     Used& used) const;
    // The rows that the attention which begins at dispatch `attention` reads: for the products
    // before it.
    static void add_rows(const stream::CommandBuffer& commands, uint32_t attention,
                         MuserProductArgs& args);
    uint64_t take_counters(uint32_t count, Used& used) const;

    GpuRef gpu_;
    CUmodule module_ = nullptr;
    CUfunction repack_ = nullptr, store_attend_ = nullptr;
    std::array<CUfunction, 5> products_{};  // by ProductForm
    DeviceMemory counters_;  // of blocks that count each other; zero between launches
};

}  // namespace muser::device::cuda
