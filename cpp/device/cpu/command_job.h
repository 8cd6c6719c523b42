// A command buffer as the pool runs it.
#pragma once

#include <string>
#include <vector>

#include "device/command_stream.h"
#include "device/cpu/pool.h"

namespace muser::device::cpu {

// A kernel of this device.
struct CpuKernel : stream::Kernel {
    const KernelImpl* impl = nullptr;
};

// Epochs: on a concurrent encoder the dispatches between two barriers (a barrier on resources
// counts as one on everything), on a serial encoder each dispatch. An encoder's end ends an epoch.
class CommandJob : public Job {
  public:
    explicit CommandJob(stream::CommandBufferRef commands) : commands_(std::move(commands)) {}
    Plan prepare(int threads) noexcept override;
    void finish(const Plan& plan) noexcept override;

  private:
    void check(const stream::Dispatch& dispatch) const;
    Plan plan_commands(int threads);

    stream::CommandBufferRef commands_;
    std::vector<std::byte*> pointers_;  // of all dispatches, by argument index
    stream::ErrorCode error_ = stream::ErrorCode::none;
    std::string error_message_;
    int64_t error_label_ = -1;
};

}  // namespace muser::device::cpu
