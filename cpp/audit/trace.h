// A trace: what the host and the device do to memory, as plain data. The auditor, its oracle and
// its mutants work on this alone; it knows neither Metal nor the token graph.
//
// Bytes are named by allocation, so that views and wrappers of one page are the same bytes; what
// covers an access (a barrier's list, hazard tracking) is named by buffer object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muser::audit {

enum class Access : uint8_t { read = 1, write = 2, read_write = 3 };
constexpr bool reads(Access access) { return (static_cast<uint8_t>(access) & 1) != 0; }
constexpr bool writes(Access access) { return (static_cast<uint8_t>(access) & 2) != 0; }

// One buffer object: `length` bytes of an allocation from `offset`.
struct Object {
    std::string label;
    uint64_t allocation = 0, offset = 0, length = 0;
    bool tracked = true;
};

// Bytes of one object that an argument touches. A wrapped ring needs two.
struct Use {
    uint32_t object = 0;
    Access access = Access::read;
    uint64_t offset = 0, length = 0;  // within the object
    std::string argument;             // its name, or the index as text
};

inline constexpr uint32_t kNone = UINT32_MAX;

// Whose write a read must see: a dispatch by index, or any dispatch with that label. Two labels
// have a meaning of their own: "host", and "contents" for bytes that nothing has written before.
struct Producer {
    uint32_t object = 0;
    uint64_t offset = 0, length = 0;
    std::string label;
    uint32_t dispatch = kNone;
};

struct Dispatch {
    std::string label;  // the closure
    int layer = -1;     // -1: outside the layers, or not known
    std::string kernel;
    std::vector<Use> uses;
    std::vector<Producer> producers;
    // What it was seen to touch, where somebody looked.
    bool observed = false;
    std::vector<Use> touched;
};

struct Barrier {
    bool broad = true;
    std::vector<uint32_t> objects;  // named by a barrier that is not broad
    std::string site;               // what the encoder said of it
};

struct Command {
    enum class Kind : uint8_t { dispatch, barrier } kind = Kind::dispatch;
    uint32_t index = 0;  // into Trace::dispatches or Trace::barriers
    bool operator==(const Command&) const = default;
};

struct Encoder {
    bool concurrent = true;
    std::vector<Command> commands;
};

struct CommandBuffer {
    std::vector<Encoder> encoders;
    bool retained = true;  // holds references to the buffers it uses
};

// What the host does, in its order. A command buffer's dispatches happen after its commit.
struct HostEvent {
    enum class Kind : uint8_t {
        begin,    // encoding of a command buffer starts
        commit,   // of a command buffer; commits on one queue are in this order
        wait,     // for a command buffer; `completed` tells whether it ended well and in time
        access,   // of memory, by the host
        release,  // the host drops its last reference to an object
        reuse,    // an object's memory is handed to somebody else
    } kind = Kind::access;
    uint32_t commands = kNone;  // index into Trace::command_buffers
    bool completed = true;
    Use use;  // access; release and reuse name use.object
    std::string label;
};

struct Trace {
    std::vector<Object> objects;
    std::vector<Use> contents;  // bytes that hold something before the first event
    std::vector<Dispatch> dispatches;
    std::vector<Barrier> barriers;
    std::vector<CommandBuffer> command_buffers;
    std::vector<HostEvent> host;
};

// ConfigError, naming the event, when an index or a byte range is out of bounds or a command
// buffer is committed twice or never.
void validate(const Trace& trace);

// Adds to each dispatch the producers that program order gives its reads: on a trace known to be
// right this is what its graph means, and mutants of it are held against that.
void state_producers(Trace& trace);

}  // namespace muser::audit
