// What must come before what: the dispatches of submitted command buffers as a graph whose edges
// are exactly the recorded ones, and nothing more.
//
//   serial encoder      each dispatch after the one before
//   broad barrier       everything after it waits for everything before it in the encoder
//   resource barrier    dispatches that bind a named object wait for earlier ones that bind it
//   encoder boundary    dispatches of different encoders (of any command buffer on the device) that
//                       bind one tracked object, at least one of them writing it
// Nothing else orders two dispatches, commit order included.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "device/command_stream.h"

namespace muser::emulator {

struct Job {
    stream::CommandBufferRef commands;
    uint32_t unfinished = 0;  // dispatches
};

struct Node {
    Job* job = nullptr;
    const stream::Dispatch* dispatch = nullptr;
    uint64_t serial = 0;  // in order of recording, over all command buffers
    uint32_t waits_for = 0;
    bool done = false;
    std::vector<Node*> next;
    // Kept by the scheduler.
    uint64_t priority = 0;
    uint64_t started = 0, finished = 0;  // threadgroups
    double start_seconds = 0;
};

class OrderGraph {
  public:
    // Adds a command buffer behind all earlier ones. Nodes that may run at once are in ready().
    Job* add(stream::CommandBufferRef commands);
    // Marks it done; its successors may become ready. True when its command buffer is complete.
    bool finish(Node* node);
    // Drops everything of a job that has failed.
    void abandon(Job* job);
    void forget(Job* job);  // after it has completed

    std::vector<Node*>& ready() { return ready_; }
    bool empty() const { return jobs_.empty(); }

  private:
    using Nodes = std::vector<Node*>;
    // Accesses of one object since (and with) its last write, in encoders already ended.
    struct Tracked {
        Nodes writers, readers;
    };
    struct InEncoder;

    void add_encoder(Job* job, const stream::Encoder& encoder);
    void depend(Node* later, Node* earlier);
    Node* new_node(Job* job, const stream::Dispatch& dispatch);

    std::deque<Job> jobs_;
    std::deque<Node> nodes_;
    std::vector<Node*> ready_;
    std::unordered_map<uint64_t, Tracked> tracked_;
    uint64_t next_serial_ = 0;
};

// Whether the kernel may write the argument, by its parameter's type. The dispatch's kernel must be
// the emulator's.
bool may_write(const stream::Dispatch& dispatch, uint32_t argument);

}  // namespace muser::emulator
