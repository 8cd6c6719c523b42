#include "device/cuda/runner.h"

#include <chrono>

#include "errors.h"

namespace muser::device::cuda {
namespace {

// Above the 64 slots of a lane in each of the two ring phases, with a few length buckets.
constexpr size_t kMostGraphs = 192;
// Well above a decode step. In a prompt chunk every row of a closure would have an edge to every
// row of the next, millions in all.
constexpr size_t kMostNodes = 4096;

double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

stream::ErrorCode code_of(CUresult result) {
    switch (result) {
        case kOutOfMemory:
            return stream::ErrorCode::out_of_memory;
        case kIllegalAddress:
        case kMisalignedAddress:
            return stream::ErrorCode::page_fault;
        case kLaunchTimeout:
            return stream::ErrorCode::timeout;
        case kLaunchOutOfResources:
            return stream::ErrorCode::invalid_resource;
        default:
            return stream::ErrorCode::internal;
    }
}

}  // namespace

Runner::Runner(GpuRef gpu) : gpu_(std::move(gpu)), graphs_(gpu_, kMostGraphs) {
    gpu_->use();
    check(gpu_->api->stream_create(&stream_, kStreamNonBlocking), "cuStreamCreate");
    waiter_ = std::thread([this] { wait_for_ends(); });
}

Runner::~Runner() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    waiter_.join();
    try {
        gpu_->use();
    } catch (const Error&) {
        return;
    }
    for (const CUevent event : events_) gpu_->api->event_destroy(event);
    gpu_->api->stream_destroy(stream_);
}

CUevent Runner::take_event() {
    {
        std::lock_guard lock(mutex_);
        if (!events_.empty()) {
            const CUevent event = events_.back();
            events_.pop_back();
            return event;
        }
    }
    CUevent event = nullptr;
    check(gpu_->api->event_create(&event, kEventDefault), "cuEventCreate");
    return event;
}

void Runner::submit(std::shared_ptr<const KernelLibrary> library,
                    stream::CommandBufferRef commands) {
    std::lock_guard order(submitting_);
    Flight flight;
    flight.commands = commands;
    flight.library = std::move(library);
    try {
        gpu_->use();
        flight.start = take_event();
        flight.end = take_event();
        check(gpu_->api->event_record(flight.start, stream_), "cuEventRecord");
        if (commands->time_labels) {
            launch_timed(flight);
        } else {
            launch(flight);
        }
        check(gpu_->api->event_record(flight.end, stream_), "cuEventRecord");
    } catch (const DeviceMemoryError& error) {
        commands->fail(stream::ErrorCode::out_of_memory, error.what());
        return;
    } catch (const Error& error) {
        commands->fail(stream::ErrorCode::invalid_resource, error.what());
        return;
    } catch (const std::exception& error) {
        commands->fail(stream::ErrorCode::internal, error.what());
        return;
    }
    commands->set_status(stream::Status::running);
    {
        std::lock_guard lock(mutex_);
        flights_.push_back(std::move(flight));
    }
    changed_.notify_all();
}

void Runner::launch(Flight& flight) {
    if (flight.commands->dispatches.empty()) return;
    if (flight.commands->dispatches.size() > kMostNodes) return launch_in_turn(flight);
    const CUgraphExec graph = graphs_.graph(*flight.library, *flight.commands);
    check(gpu_->api->graph_launch(graph, stream_), "cuGraphLaunch");
}

// The stream orders more than the recording asks for.
void Runner::launch_in_turn(const Flight& flight) {
    const stream::CommandBuffer& commands = *flight.commands;
    KernelLibrary::Used used;
    for (uint32_t d = 0; d < commands.dispatches.size(); ++d) {
        PreparedLaunch launch = flight.library->prepare(commands, {{d}, {}}, used);
        check(gpu_->api->launch(launch.function, launch.grid[0], launch.grid[1], launch.grid[2],
                                launch.block[0], launch.block[1], launch.block[2],
                                launch.shared_bytes, stream_, launch.params.data(), nullptr),
              "cuLaunchKernel");
    }
}

void Runner::launch_timed(Flight& flight) {
    const DriverApi& api = *gpu_->api;
    Program program = make_program(*flight.library, *flight.commands, true);
    const auto close = [&] {
        flight.label_ends.push_back(take_event());
        check(api.event_record(flight.label_ends.back(), stream_), "cuEventRecord");
    };
    for (size_t i = 0; i < program.order.size(); ++i) {
        const uint32_t label =
            flight.commands->dispatches[program.order[i].dispatches.front()].label;
        if (flight.labels.empty() || flight.labels.back() != label) {
            if (!flight.labels.empty()) close();
            flight.labels.push_back(label);
            flight.label_starts.push_back(take_event());
            check(api.event_record(flight.label_starts.back(), stream_), "cuEventRecord");
        }
        PreparedLaunch& launch = program.launches[i];
        check(api.launch(launch.function, launch.grid[0], launch.grid[1], launch.grid[2],
                         launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes,
                         stream_, launch.params.data(), nullptr),
              "cuLaunchKernel");
    }
    if (!flight.labels.empty()) close();
}

double Runner::seconds_between(CUevent start, CUevent end) const {
    float milliseconds = 0;
    if (gpu_->api->event_elapsed(&milliseconds, start, end) != kSuccess) return 0;
    return 1e-3 * static_cast<double>(milliseconds);
}

void Runner::finish(Flight& flight) noexcept {
    const CUresult result = gpu_->api->event_synchronize(flight.end);
    const double end = now_seconds();
    const stream::CommandBufferRef commands = flight.commands;
    if (result != kSuccess) {
        // The context is lost with everything in it; the driver does not say which kernel it was.
        commands->fail(code_of(result), error_text(result));
        return;
    }
    const double start = end - seconds_between(flight.start, flight.end);
    std::vector<stream::LabelTime> times;
    for (size_t i = 0; i < flight.labels.size(); ++i) {
        times.push_back({flight.labels[i],
                         start + seconds_between(flight.start, flight.label_starts[i]),
                         start + seconds_between(flight.start, flight.label_ends[i])});
    }
    {
        std::lock_guard lock(mutex_);
        events_.push_back(flight.start);
        events_.push_back(flight.end);
        events_.insert(events_.end(), flight.label_starts.begin(), flight.label_starts.end());
        events_.insert(events_.end(), flight.label_ends.begin(), flight.label_ends.end());
    }
    {
        std::lock_guard lock(commands->mutex);
        commands->start_seconds = start;
        commands->end_seconds = end;
        commands->label_times = std::move(times);
    }
    commands->set_status(stream::Status::completed);
}

void Runner::wait_for_ends() noexcept {
    try {
        gpu_->use();
    } catch (const Error&) {  // every wait will say so
    }
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return closing_ || !flights_.empty(); });
        if (flights_.empty()) return;
        Flight flight = std::move(flights_.front());
        flights_.pop_front();
        lock.unlock();
        finish(flight);
        flight = {};  // the recording may go before the next one is waited for
        lock.lock();
    }
}

}  // namespace muser::device::cuda
