// Traces of recorded command buffers: what an encoder really encoded, with step-dependent ranges
// resolved.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "audit/trace.h"
#include "device/command_stream.h"

namespace muser::audit {

class StreamTrace {
  public:
    // How names are made of what the stream has: nothing here depends on them.
    struct Naming {
        std::function<std::string(const std::string& kernel, uint32_t argument)> argument;
        std::function<int(const std::string& label)> layer;
    };
    explicit StreamTrace(Naming naming) : naming_(std::move(naming)) {}

    // A 32-bit word of a bound step slot, as it will be when the dispatch runs.
    using StepWord = std::function<uint32_t(const stream::Binding& slot, uint32_t word)>;

    uint32_t object(const stream::BufferRef& buffer);
    // Bytes that hold something before the trace begins.
    void contents(const stream::BufferRef& buffer, uint64_t offset, uint64_t length);
    // Begin and commit of a recording, one after the other; returns its index for wait().
    uint32_t commit(const stream::CommandBuffer& recording, const StepWord& step);
    void wait(uint32_t commands, bool completed = true);
    void host(Access access, const stream::BufferRef& buffer, uint64_t offset, uint64_t length,
              std::string label);

    Trace take() { return std::move(trace_); }

  private:
    Dispatch convert(const stream::CommandBuffer& recording, const stream::Dispatch& dispatch,
                     const StepWord& step);
    Naming naming_;
    Trace trace_;
    std::map<uint64_t, uint32_t> objects_;  // by buffer id
};

}  // namespace muser::audit
