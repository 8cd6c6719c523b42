#include "device/emulator/scheduler.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "contract/ftz.h"

namespace muser::emulator {

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Notes when the dispatch ran, as part of its closure.
void record_time(const Node& node) {
    stream::CommandBuffer& commands = *node.job->commands;
    if (!commands.time_labels) return;
    const uint32_t label = node.dispatch->label;
    const auto known =
        std::find_if(commands.label_times.begin(), commands.label_times.end(),
                     [&](const stream::LabelTime& time) { return time.label == label; });
    if (known == commands.label_times.end()) {
        commands.label_times.push_back({label, node.start_seconds, now()});
    } else {
        known->start_seconds = std::min(known->start_seconds, node.start_seconds);
        known->end_seconds = now();
    }
}

}  // namespace

bool may_write(const stream::Dispatch& dispatch, uint32_t argument) {
    const auto& kernel = static_cast<const EmulatorKernel&>(*dispatch.kernel);
    return (kernel.plain->writable >> (argument - 1) & 1) != 0;
}

uint64_t Random::next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// A threadgroup slot, with stacks for as many threads as it has had to run.
struct Scheduler::Running {
    std::unique_ptr<Threadgroup> group;
    Node* node = nullptr;  // null: free
};

Scheduler::Scheduler(Memory& memory, uint64_t seed)
    : memory_(memory), next_seed_(seed), random_(seed), worker_([this] { work(); }) {}

Scheduler::~Scheduler() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
        held_ = false;
    }
    wake_.notify_all();
    worker_.join();
}

void Scheduler::submit(stream::CommandBufferRef commands) {
    {
        const std::lock_guard lock(mutex_);
        pending_.push_back(std::move(commands));
    }
    wake_.notify_all();
}

void Scheduler::hold(bool held) {
    {
        const std::lock_guard lock(mutex_);
        held_ = held;
    }
    wake_.notify_all();
}

void Scheduler::set_seed(uint64_t seed) {
    const std::lock_guard lock(mutex_);
    next_seed_ = seed;
}

void Scheduler::set_tracing(bool tracing) {
    const std::lock_guard lock(mutex_);
    next_tracing_ = tracing;
}

TraceReport Scheduler::take_report() {
    const std::lock_guard lock(mutex_);
    return std::exchange(report_, {});
}

void Scheduler::work() {
    // Set once for the thread: lanes share it, a switch does not touch it.
    contract::set_float_mode(contract::kContractFloatMode);
    for (;;) {
        std::deque<stream::CommandBufferRef> taken;
        {
            std::unique_lock lock(mutex_);
            wake_.wait(
                lock, [&] { return closing_ || (!held_ && !pending_.empty()) || !graph_.empty(); });
            if (!held_) taken.swap(pending_);
            if (closing_ && taken.empty() && graph_.empty()) return;
            if (graph_.empty()) {
                random_ = Random(next_seed_);
                if (next_seed_ == 0 || next_tracing_) {
                    mode_ = Mode::recorded;
                    width_ = 1;
                } else {
                    constexpr Mode kModes[] = {Mode::priorities, Mode::uniform, Mode::latest};
                    mode_ = kModes[random_.below(3)];
                    width_ = mode_ == Mode::uniform ? 2 + static_cast<uint32_t>(random_.below(7))
                                                    : 1 + static_cast<uint32_t>(random_.below(3));
                }
                if (next_tracing_ != (tracer_ != nullptr)) {
                    tracer_ = next_tracing_ ? std::make_unique<Tracer>(memory_) : nullptr;
                }
            }
        }
        for (stream::CommandBufferRef& commands : taken) begin(std::move(commands));
        run_ready();
    }
}

void Scheduler::begin(stream::CommandBufferRef commands) {
    commands->start_seconds = now();
    commands->set_status(stream::Status::running);
    for (const stream::Dispatch& dispatch : commands->dispatches) {
        if (dynamic_cast<const EmulatorKernel*>(dispatch.kernel.get()) == nullptr) {
            commands->fail(stream::ErrorCode::invalid_resource,
                           "a dispatch names a kernel of another device", dispatch.label);
            return;
        }
    }
    Job* job = graph_.add(std::move(commands));
    if (job->unfinished == 0) complete(job);
}

// Runs until nothing is left or, between threadgroups, something new has been submitted.
void Scheduler::run_ready() {
    for (uint32_t count = 1; !graph_.empty(); ++count) {
        const auto flying = static_cast<uint32_t>(std::count_if(
            running_.begin(), running_.end(), [](const auto& r) { return r->node != nullptr; }));
        bool started = false;
        if (flying < width_) {
            if (Node* node = choose()) started = start_group(node);
        }
        if (!started && flying == 0) {
            // Nothing runs and nothing can start: every node left has failed or finished.
            if (graph_.ready().empty()) return;
            continue;
        }
        if (started && flying + 1 < width_) continue;
        std::vector<Running*> candidates;
        for (const auto& r : running_) {
            if (r->node != nullptr) candidates.push_back(r.get());
        }
        Running& running =
            *candidates[mode_ == Mode::recorded ? 0 : random_.below(candidates.size())];
        do {
            if (tracer_) tracer_->enter_group(*running.group);
            const bool more = running.group->step(mode_ == Mode::recorded ? 0 : random_.next());
            if (!more) {
                finish_group(running);
                break;
            }
        } while (mode_ == Mode::recorded);
        if (count % 64 == 0) {
            const std::lock_guard lock(mutex_);
            if (!held_ && !pending_.empty()) return;
        }
    }
}

Node* Scheduler::choose() {
    std::vector<Node*>& ready = graph_.ready();
    std::erase_if(ready, [](const Node* node) {
        return node->done || node->started == node->dispatch->groups.count();
    });
    if (ready.empty()) return nullptr;
    const auto serial = [](const Node* a, const Node* b) { return a->serial < b->serial; };
    const auto priority = [](const Node* a, const Node* b) { return a->priority < b->priority; };
    switch (mode_) {
        case Mode::recorded:
            return *std::min_element(ready.begin(), ready.end(), serial);
        case Mode::latest:
            return *std::max_element(ready.begin(), ready.end(), serial);
        case Mode::priorities:
            for (Node* node : ready) {
                if (node->priority == 0) node->priority = random_.next() | 1;
            }
            return *std::max_element(ready.begin(), ready.end(), priority);
        case Mode::uniform:
            break;
    }
    return ready[random_.below(ready.size())];
}

bool Scheduler::check_bindings(const Node& node, std::string& problem) const {
    const stream::Dispatch& dispatch = *node.dispatch;
    const stream::CommandBuffer& commands = *node.job->commands;
    const auto& kernel = static_cast<const EmulatorKernel&>(*dispatch.kernel);
    uint32_t bound = 0;
    for (uint32_t b = 0; b < dispatch.binding_count; ++b) {
        const stream::Binding& binding = commands.bindings[dispatch.first_binding + b];
        if (binding.argument < 1 || binding.argument > kernel.plain->buffers) {
            problem = "binds argument " + std::to_string(binding.argument) + " of " +
                      std::to_string(kernel.plain->buffers);
            return false;
        }
        if (binding.offset > binding.buffer->length) {
            problem = "binds argument " + std::to_string(binding.argument) + " at offset " +
                      std::to_string(binding.offset) + " of " +
                      std::to_string(binding.buffer->length) + " bytes";
            return false;
        }
        bound |= 1u << (binding.argument - 1);
    }
    if (bound != (1u << kernel.plain->buffers) - 1) {
        problem = "leaves a buffer argument unbound";
    } else if (dispatch.args_length != kernel.plain->args_bytes) {
        problem = "passes " + std::to_string(dispatch.args_length) + " argument bytes, not " +
                  std::to_string(kernel.plain->args_bytes);
    } else if (const uint64_t threads = dispatch.threads.count();
               threads == 0 || threads > kernel.max_threads) {
        problem = "asks for " + std::to_string(threads) + " threads per threadgroup";
    }
    return problem.empty();
}

bool Scheduler::start_group(Node* node) {
    const stream::Dispatch& dispatch = *node->dispatch;
    const stream::CommandBuffer& commands = *node->job->commands;
    const auto& kernel = static_cast<const EmulatorKernel&>(*dispatch.kernel);
    const uint64_t total = dispatch.groups.count();
    if (node->started == 0) {
        std::string problem;
        if (!check_bindings(*node, problem)) {
            fail(node, stream::ErrorCode::invalid_resource,
                 "dispatch of " + kernel.name + " " + problem);
            return false;
        }
        if (tracer_) tracer_->begin_dispatch(commands, dispatch, kernel.traced);
    }
    if (node->started == 0) node->start_seconds = now();
    if (total == 0) {
        if (tracer_) tracer_->end_dispatch();
        if (graph_.finish(node)) complete(node->job);
        return false;
    }

    // Threadgroups of one dispatch in a pseudo-random order: a stride without common factors.
    uint64_t index = node->started;
    if (mode_ == Mode::latest) {
        index = total - 1 - index;
    } else if (mode_ != Mode::recorded && total > 2) {
        uint64_t stride = 1 + (node->serial * 7919 + width_ * 104729) % (total - 1);
        while (std::gcd(stride, total) != 1) ++stride;
        index = (index * (stride % total) + node->serial) % total;
    }
    ++node->started;

    const auto threads = static_cast<uint32_t>(dispatch.threads.count());
    auto slot = std::find_if(running_.begin(), running_.end(), [&](const auto& r) {
        return r->node == nullptr && r->group->max_threads() >= threads;
    });
    if (slot == running_.end()) {
        std::erase_if(running_, [](const auto& r) { return r->node == nullptr; });
        auto fresh = std::make_unique<Running>();
        fresh->group = std::make_unique<Threadgroup>(threads <= 128 ? 128 : 1024);
        slot = running_.insert(running_.end(), std::move(fresh));
    }

    GroupLaunch launch;
    launch.kernel = tracer_ ? kernel.traced : kernel.plain;
    launch.args = commands.arguments(dispatch);
    for (uint32_t b = 0; b < dispatch.binding_count; ++b) {
        const stream::Binding& binding = commands.bindings[dispatch.first_binding + b];
        launch.buffers[binding.argument - 1] = binding.buffer->contents + binding.offset;
    }
    launch.group.x = static_cast<uint32_t>(index % dispatch.groups.x);
    launch.group.y = static_cast<uint32_t>(index / dispatch.groups.x % dispatch.groups.y);
    launch.group.z =
        static_cast<uint32_t>(index / dispatch.groups.x / dispatch.groups.y % dispatch.groups.z);
    launch.threads = threads;
    (*slot)->node = node;
    (*slot)->group->start(launch, index, tracer_ != nullptr);
    if (tracer_) tracer_->begin_group(*(*slot)->group);
    return true;
}

void Scheduler::finish_group(Running& running) {
    Node* node = std::exchange(running.node, nullptr);
    const GroupFault fault = running.group->fault();
    if (tracer_) {
        // A fault is a finding; the rest of the dispatch would only repeat it.
        tracer_->end_group(*running.group);
        if (fault.kind != GroupFault::Kind::none) {
            node->finished = node->started = node->dispatch->groups.count();
            --node->finished;
        }
    } else if (fault.kind != GroupFault::Kind::none) {
        fail(node, stream::ErrorCode::page_fault,
             node->dispatch->kernel->name + ": " + fault.text());
        return;
    }
    if (++node->finished == node->dispatch->groups.count()) {
        record_time(*node);
        if (tracer_) tracer_->end_dispatch();
        if (graph_.finish(node)) complete(node->job);
    }
}

// Nothing more of the node's command buffer runs, threadgroups in flight included.
void Scheduler::fail(Node* node, stream::ErrorCode code, const std::string& message) {
    Job* job = node->job;
    for (const auto& running : running_) {
        if (running->node != nullptr && running->node->job == job) running->node = nullptr;
    }
    const stream::CommandBufferRef commands = job->commands;
    const uint32_t label = node->dispatch->label;
    graph_.abandon(job);
    graph_.forget(job);
    commands->fail(code, message, label);
}

void Scheduler::complete(Job* job) {
    stream::CommandBufferRef commands = job->commands;
    std::string damage;
    for (const stream::Binding& binding : commands->bindings) {
        const std::shared_ptr<Allocation> allocation = memory_.of(*binding.buffer);
        if (allocation == nullptr) continue;
        if (const auto offset = Memory::damaged_guard(*allocation)) {
            damage = "a kernel wrote byte " + std::to_string(*offset) + " of buffer '" +
                     binding.buffer->label + "', which has " + std::to_string(allocation->length);
            Memory::repair_guard(*allocation);
        }
    }
    graph_.forget(job);
    if (tracer_) {
        const std::lock_guard lock(mutex_);
        tracer_->move_to(report_);
    }
    if (!damage.empty()) {
        commands->fail(stream::ErrorCode::page_fault, damage);
        return;
    }
    commands->end_seconds = now();
    commands->set_status(stream::Status::completed);
}

}  // namespace muser::emulator
