#import "metal/wait.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "errors.h"
#include "metal/objc_ptr.h"
#include "metal/recording.h"
#if !defined(__APPLE__)
#import "metal/portable/portable.h"
#endif

namespace muser {

struct Waiter::State {
    std::vector<std::shared_ptr<const void>> memory;  // first, so that it goes last
    std::mutex mutex;
    std::condition_variable changed;
    ObjcPtr<CommandBufferId> watched;  // set by the caller, cleared when it has completed
    std::vector<ObjcPtr<CommandBufferId>> abandoned;
    bool closing = false;
};

Waiter::Waiter(std::vector<std::shared_ptr<const void>> memory)
    : state_(std::make_shared<State>()) {
    state_->memory = std::move(memory);
    // Detached, and holding the state itself: a command buffer that never completes must not keep
    // the engine, or the process, from going away.
    const std::shared_ptr<State> state = state_;
    std::thread([state]() {
        std::unique_lock lock(state->mutex);
        for (;;) {
            state->changed.wait(lock, [&] { return state->closing || state->watched; });
            if (state->closing) {
                const std::vector<ObjcPtr<CommandBufferId>> rest = std::move(state->abandoned);
                lock.unlock();
                for (const auto& commands : rest) [commands.get() waitUntilCompleted];
                return;
            }
            ObjcPtr<CommandBufferId> commands = state->watched;
            lock.unlock();
            [commands.get() waitUntilCompleted];
            lock.lock();
            if (state->watched.get() == commands.get()) state->watched = {};
            state->changed.notify_all();
        }
    }).detach();
}

void Waiter::abandon(const std::vector<ObjcPtr<CommandBufferId>>& commands) {
    std::lock_guard lock(state_->mutex);
    state_->abandoned.insert(state_->abandoned.end(), commands.begin(), commands.end());
}

Waiter::~Waiter() {
    std::lock_guard lock(state_->mutex);
    state_->closing = true;
    state_->changed.notify_all();
}

namespace {

// The closure a device blames, and the ones it can name at all, for the error's facts.
std::string closure_at_fault(id<MTLCommandBuffer> commands) {
#if defined(__APPLE__)
    (void)commands;
#else
    const stream::CommandBufferRef& recording = portable::recording_of(commands);
    std::lock_guard lock(recording->mutex);
    if (recording->error_label >= 0) {
        return recording->labels[static_cast<size_t>(recording->error_label)];
    }
#endif
    return "unknown";
}

const char* code_in_words(long code) {
    switch (code) {
        case 1:
            return "internal error";
        case 2:
            return "timeout";
        case 3:
            return "page fault";
        case 4:
            return "submissions ignored after earlier faults";
        case 7:
            return "not permitted";
        case 8:
            return "out of memory";
        case 9:
            return "invalid resource";
        case 14:
            return "impacting interactivity";
        default:
            return "unnamed error";
    }
}

[[noreturn]] void throw_device_error(id<MTLCommandBuffer> commands) {
    NSError* error = [commands error];
    const long code = error == nil ? 0 : static_cast<long>([error code]);
    const std::string text =
        error == nil ? "no reason given" : [[error localizedDescription] UTF8String];
    const std::string closure = closure_at_fault(commands);
    Facts facts{{"code", std::to_string(code)},
                {"meaning", code_in_words(code)},
                {"closure", closure},
                {"text", text}};
    if (const int layer = layer_of(closure); layer >= 0) {
        facts.push_back({"layer", std::to_string(layer)});
    }
    const std::string message = std::string("the device failed: ") + code_in_words(code) +
                                " (code " + std::to_string(code) + ") in closure " + closure +
                                ": " + text;
    if (code == 8) throw DeviceMemoryError(message, facts);
    throw DeviceError(message, facts);
}

}  // namespace

void Waiter::wait(id<MTLCommandBuffer> commands, double seconds,
                  const std::function<bool()>& interrupted) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    auto deadline =
        start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    bool stopping = false;
    std::unique_lock lock(state_->mutex);
    state_->watched = ObjcPtr<CommandBufferId>::retain(commands);
    state_->changed.notify_all();
    const auto done = [&] { return state_->watched.get() != commands; };
    for (;;) {
        const auto slice = std::min(deadline, Clock::now() + std::chrono::milliseconds(100));
        if (state_->changed.wait_until(lock, slice, done)) break;
        if (interrupted && !stopping) {
            lock.unlock();
            stopping = interrupted();
            lock.lock();
            if (stopping) {
                deadline = std::min(
                    deadline, Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                 std::chrono::duration<double>(kGraceSeconds)));
            }
        }
        if (Clock::now() < deadline) continue;
        if (stopping) throw Interrupted{};
        const auto status = static_cast<unsigned long>([commands status]);
        throw DeadlineError("the device did not finish within " + std::to_string(seconds) +
                                " s (command buffer status " + std::to_string(status) + ")",
                            {{"seconds", std::to_string(seconds)},
                             {"status", std::to_string(status)},
                             {"closure", closure_at_fault(commands)}});
    }
    lock.unlock();
    if ([commands status] != MTLCommandBufferStatusCompleted) throw_device_error(commands);
}

}  // namespace muser
