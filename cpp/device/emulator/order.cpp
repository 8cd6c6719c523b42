#include "device/emulator/order.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace muser::emulator {

namespace {

std::span<const stream::Binding> bindings(const Node& node) {
    return {node.job->commands->bindings.data() + node.dispatch->first_binding,
            node.dispatch->binding_count};
}

}  // namespace

// What one encoder has bound so far.
struct OrderGraph::InEncoder {
    Nodes all;
    size_t before_barrier = 0;  // all[0 ... before_barrier) precede the last broad barrier
    size_t epoch_begin = 0;     // of the epoch that this barrier ended
    std::unordered_map<uint64_t, Nodes> bound;   // by object
    std::unordered_map<uint64_t, Nodes> fenced;  // by object: what a resource barrier put first
};

void OrderGraph::depend(Node* later, Node* earlier) {
    if (earlier->done || earlier == later) return;
    if (std::find(earlier->next.begin(), earlier->next.end(), later) != earlier->next.end()) return;
    earlier->next.push_back(later);
    ++later->waits_for;
}

Node* OrderGraph::new_node(Job* job, const stream::Dispatch& dispatch) {
    Node& node = nodes_.emplace_back();
    node.job = job;
    node.dispatch = &dispatch;
    node.serial = next_serial_++;
    ++job->unfinished;
    return &node;
}

void OrderGraph::add_encoder(Job* job, const stream::Encoder& encoder) {
    const stream::CommandBuffer& commands = *job->commands;
    InEncoder state;
    for (uint32_t c = 0; c < encoder.command_count; ++c) {
        const stream::Command& command = commands.commands[encoder.first_command + c];
        if (command.kind == stream::Command::Kind::barrier) {
            if (!encoder.concurrent) continue;
            const stream::Barrier& barrier = commands.barriers[command.index];
            if (barrier.all_buffers) {
                // An empty epoch adds nothing: the one before it stays the one to wait for.
                if (state.all.size() > state.before_barrier) {
                    state.epoch_begin = state.before_barrier;
                    state.before_barrier = state.all.size();
                }
                continue;
            }
            for (uint32_t r = 0; r < barrier.resource_count; ++r) {
                const uint64_t id = commands.resources[barrier.first_resource + r]->id;
                state.fenced[id] = state.bound[id];
            }
            continue;
        }

        Node* node = new_node(job, commands.dispatches[command.index]);
        if (!encoder.concurrent) {
            if (!state.all.empty()) depend(node, state.all.back());
        } else {
            for (size_t i = state.epoch_begin; i < state.before_barrier; ++i) {
                depend(node, state.all[i]);
            }
        }
        for (const stream::Binding& binding : bindings(*node)) {
            const uint64_t id = binding.buffer->id;
            if (const auto fence = state.fenced.find(id); fence != state.fenced.end()) {
                for (Node* earlier : fence->second) depend(node, earlier);
            }
            state.bound[id].push_back(node);
            if (!binding.buffer->tracked) continue;
            const auto known = tracked_.find(id);
            if (known == tracked_.end()) continue;
            for (Node* earlier : known->second.writers) depend(node, earlier);
            if (may_write(*node->dispatch, binding.argument)) {
                for (Node* earlier : known->second.readers) depend(node, earlier);
            }
        }
        state.all.push_back(node);
        if (node->waits_for == 0) ready_.push_back(node);
    }

    // The encoder ends: its accesses of tracked objects are what later encoders meet.
    std::unordered_map<uint64_t, Tracked> here;
    for (Node* node : state.all) {
        for (const stream::Binding& binding : bindings(*node)) {
            if (!binding.buffer->tracked) continue;
            Tracked& accesses = here[binding.buffer->id];
            (may_write(*node->dispatch, binding.argument) ? accesses.writers : accesses.readers)
                .push_back(node);
        }
    }
    for (auto& [id, accesses] : here) {
        Tracked& known = tracked_[id];
        if (accesses.writers.empty()) {
            known.readers.insert(known.readers.end(), accesses.readers.begin(),
                                 accesses.readers.end());
        } else {
            known = std::move(accesses);
        }
    }
}

Job* OrderGraph::add(stream::CommandBufferRef commands) {
    Job& job = jobs_.emplace_back();
    job.commands = std::move(commands);
    for (const stream::Encoder& encoder : job.commands->encoders) add_encoder(&job, encoder);
    return &job;
}

bool OrderGraph::finish(Node* node) {
    node->done = true;
    for (Node* later : node->next) {
        if (--later->waits_for == 0 && !later->done) ready_.push_back(later);
    }
    return --node->job->unfinished == 0;
}

void OrderGraph::abandon(Job* job) {
    std::erase_if(ready_, [job](const Node* node) { return node->job == job; });
    for (Node& node : nodes_) {
        if (node.job != job || node.done) continue;
        node.done = true;
        for (Node* later : node.next) {
            if (--later->waits_for == 0 && !later->done && later->job != job) {
                ready_.push_back(later);
            }
        }
    }
    job->unfinished = 0;
}

void OrderGraph::forget(Job* job) {
    const auto drop = [](Nodes& nodes) { std::erase_if(nodes, [](Node* n) { return n->done; }); };
    for (auto entry = tracked_.begin(); entry != tracked_.end();) {
        drop(entry->second.writers);
        drop(entry->second.readers);
        const bool empty = entry->second.writers.empty() && entry->second.readers.empty();
        entry = empty ? tracked_.erase(entry) : std::next(entry);
    }
    // The scheduler takes finished nodes off this list only when it next chooses; by then they
    // would be gone.
    drop(ready_);
    job->commands.reset();
    // Nodes go when those before them have gone: addresses of the others must stay.
    while (!nodes_.empty() && nodes_.front().done && nodes_.front().job->commands == nullptr) {
        nodes_.pop_front();
    }
    while (!jobs_.empty() && jobs_.front().commands == nullptr) {
        const bool used = std::any_of(nodes_.begin(), nodes_.end(),
                                      [&](const Node& node) { return node.job == &jobs_.front(); });
        if (used) break;
        jobs_.pop_front();
    }
}

}  // namespace muser::emulator
