#include "device/cpu/command_job.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <stdexcept>

namespace muser::device::cpu {
namespace {

using stream::Command;
using stream::Dispatch;
using stream::Encoder;

double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// A dispatch that cannot run; becomes the command buffer's error.
struct BadDispatch : std::runtime_error {
    BadDispatch(const std::string& message, int64_t at) : std::runtime_error(message), label(at) {}
    int64_t label;
};

std::vector<stream::LabelTime> label_times(const Plan& plan) {
    std::vector<stream::LabelTime> times;
    for (size_t i = 0; i < plan.items.size(); ++i) {
        const uint32_t label = plan.items[i].label;
        const double start = 1e-9 * static_cast<double>(plan.times[i].start.load());
        const double end = 1e-9 * static_cast<double>(plan.times[i].end.load());
        // A closure's dispatches are recorded one after the other.
        if (times.empty() || times.back().label != label) {
            times.push_back({label, start, end});
        } else {
            times.back().start_seconds = std::min(times.back().start_seconds, start);
            times.back().end_seconds = std::max(times.back().end_seconds, end);
        }
    }
    return times;
}

}  // namespace

void CommandJob::check(const Dispatch& dispatch) const {
    const std::string what = "kernel '" + (dispatch.kernel ? dispatch.kernel->name : "?") + "'";
    if (dynamic_cast<const CpuKernel*>(dispatch.kernel.get()) == nullptr) {
        throw BadDispatch(what + " was not made by the cpu device", dispatch.label);
    }
    for (uint32_t i = 0; i < dispatch.binding_count; ++i) {
        const stream::Binding& binding = commands_->bindings[dispatch.first_binding + i];
        const std::string where = what + ", argument " + std::to_string(binding.argument) + ": ";
        if (!binding.buffer || binding.buffer->contents == nullptr) {
            throw BadDispatch(where + "the buffer has no host memory", dispatch.label);
        }
        if (binding.offset > binding.buffer->length) {
            throw BadDispatch(where + "offset " + std::to_string(binding.offset) +
                                  " is past the buffer's " +
                                  std::to_string(binding.buffer->length) + " bytes",
                              dispatch.label);
        }
    }
}

Plan CommandJob::plan_commands(int threads) {
    const stream::CommandBuffer& c = *commands_;
    // All pointers first: the calls keep addresses into the vector.
    std::vector<size_t> first(c.dispatches.size());
    size_t total = 0;
    for (size_t d = 0; d < c.dispatches.size(); ++d) {
        check(c.dispatches[d]);
        first[d] = total;
        uint32_t arguments = 1;
        for (uint32_t i = 0; i < c.dispatches[d].binding_count; ++i) {
            const stream::Binding& binding = c.bindings[c.dispatches[d].first_binding + i];
            arguments = std::max(arguments, binding.argument + 1);
        }
        // Optional arguments at the end of a kernel's list may be left unbound: they read as null.
        constexpr uint32_t kMostArguments = 11;
        total += std::max(arguments, kMostArguments);
    }
    pointers_.assign(total, nullptr);

    Planner planner(threads);
    for (const Encoder& encoder : c.encoders) {
        for (uint32_t i = 0; i < encoder.command_count; ++i) {
            const Command& command = c.commands[encoder.first_command + i];
            if (command.kind == Command::Kind::barrier) {
                planner.end_epoch();
                continue;
            }
            const Dispatch& dispatch = c.dispatches[command.index];
            std::byte** pointers = pointers_.data() + first[command.index];
            for (uint32_t b = 0; b < dispatch.binding_count; ++b) {
                const stream::Binding& binding = c.bindings[dispatch.first_binding + b];
                pointers[binding.argument] = binding.buffer->contents + binding.offset;
            }
            const KernelImpl& kernel = *static_cast<const CpuKernel&>(*dispatch.kernel).impl;
            planner.add(kernel, {c.arguments(dispatch), pointers}, dispatch.label);
            if (!encoder.concurrent) planner.end_epoch();
        }
        planner.end_epoch();
    }
    return planner.take(c.time_labels);
}

Plan CommandJob::prepare(int threads) noexcept {
    {
        std::lock_guard lock(commands_->mutex);
        commands_->start_seconds = now_seconds();
        commands_->status = stream::Status::running;
    }
    commands_->changed.notify_all();
    try {
        return plan_commands(threads);
    } catch (const BadDispatch& bad) {
        error_ = stream::ErrorCode::invalid_resource;
        error_message_ = bad.what();
        error_label_ = bad.label;
    } catch (const std::bad_alloc&) {
        error_ = stream::ErrorCode::out_of_memory;
    } catch (const std::exception& other) {
        error_ = stream::ErrorCode::internal;
        error_message_ = other.what();
    }
    return {};
}

void CommandJob::finish(const Plan& plan) noexcept {
    // The recording may be released, and its waiter be gone, as soon as the status is final.
    const stream::CommandBufferRef commands = std::move(commands_);
    std::vector<stream::LabelTime> times;
    if (plan.times) times = label_times(plan);
    {
        std::lock_guard lock(commands->mutex);
        commands->end_seconds = now_seconds();
        commands->label_times = std::move(times);
    }
    if (error_ != stream::ErrorCode::none) {
        commands->fail(error_, std::move(error_message_), error_label_);
    } else {
        commands->set_status(stream::Status::completed);
    }
}

}  // namespace muser::device::cpu
