#include "device/fault_device.h"

#include <thread>
#include <utility>
#include <vector>

namespace muser::device {
namespace {

using stream::CommandBufferRef;
using stream::ErrorCode;
using stream::Status;

struct Switches {
    int error_at_dispatch = 0, error_in_wait = 0, error_in_buffer = 0, out_of_memory = 0, hang = 0,
        refuse_allocation = 0;
};

class FaultDevice : public Device {
  public:
    FaultDevice(std::shared_ptr<Device> device, Switches switches)
        : device_(std::move(device)), switches_(switches) {}
    ~FaultDevice() override {
        for (std::thread& thread : threads_) thread.join();
    }

    std::string_view name() const override { return device_->name(); }
    std::string description() const override { return device_->description(); }
    std::string isa() const override { return device_->isa(); }
    int threads() const override { return device_->threads(); }
    std::shared_ptr<stream::Buffer> allocate(uint64_t bytes, MemoryUse use) override {
        if (++allocations_ == switches_.refuse_allocation) return nullptr;
        return device_->allocate(bytes, use);
    }
    std::shared_ptr<stream::Buffer> wrap(const void* bytes, uint64_t length) override {
        return device_->wrap(bytes, length);
    }
    stream::KernelRef kernel(std::string_view name, std::string_view source) override {
        return device_->kernel(name, source);
    }
    WeightLayout layout(const WeightShape& shape) const override { return device_->layout(shape); }
    void repack(const WeightShape& shape, const WeightLayout& layout, const void* rows,
                stream::Buffer& destination, uint64_t offset) override {
        device_->repack(shape, layout, rows, destination, offset);
    }
    void read(const stream::Buffer& from, uint64_t offset, void* to, uint64_t bytes) override {
        device_->read(from, offset, to, bytes);
    }
    void write(stream::Buffer& to, uint64_t offset, const void* from, uint64_t bytes) override {
        device_->write(to, offset, from, bytes);
    }

    void submit(CommandBufferRef commands) override {
        const int buffer = ++buffers_;
        const auto k = static_cast<size_t>(switches_.error_at_dispatch);
        if (k > 0 && buffer > 1 && k <= commands->dispatches.size()) {
            commands->fail(ErrorCode::page_fault, "injected at dispatch " + std::to_string(k),
                           commands->dispatches[k - 1].label);
        } else if (buffer == switches_.error_in_buffer) {
            commands->fail(ErrorCode::timeout, "injected in command buffer");
        } else if (buffer == switches_.out_of_memory) {
            commands->fail(ErrorCode::out_of_memory, "injected");
        } else if (buffer == switches_.hang) {
            commands->set_status(Status::running);
            hung_.push_back(std::move(commands));
        } else if (buffer == switches_.error_in_wait) {
            commands->set_status(Status::running);
            // The waiter is parked by the time this arrives.
            threads_.emplace_back([commands]() {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                commands->fail(ErrorCode::internal, "injected during the wait");
            });
        } else {
            device_->submit(std::move(commands));
        }
    }

  private:
    std::shared_ptr<Device> device_;
    Switches switches_;
    int buffers_ = 0;
    int allocations_ = 0;
    std::vector<CommandBufferRef> hung_;  // what a hung device still holds
    std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Device> make_fault_device(std::shared_ptr<Device> device,
                                          const std::map<std::string, int>& switches) {
    const auto value = [&](const char* name) {
        const auto found = switches.find(name);
        return found == switches.end() ? 0 : found->second;
    };
    const Switches set{value("device_error_at_dispatch"),
                       value("device_error_in_wait"),
                       value("device_error_in_buffer"),
                       value("device_out_of_memory"),
                       value("device_hang"),
                       value("device_refuse_allocation")};
    if (set.error_at_dispatch + set.error_in_wait + set.error_in_buffer + set.out_of_memory +
            set.hang + set.refuse_allocation ==
        0) {
        return nullptr;
    }
    return std::make_unique<FaultDevice>(std::move(device), set);
}

}  // namespace muser::device
