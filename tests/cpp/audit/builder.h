// Traces for tests, written as an encoder would be called.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "audit/checker.h"
#include "audit/trace.h"

namespace muser::audit {

inline Use read(uint32_t object, uint64_t offset, uint64_t length, std::string argument = "x") {
    return {object, Access::read, offset, length, std::move(argument)};
}
inline Use write(uint32_t object, uint64_t offset, uint64_t length, std::string argument = "y") {
    return {object, Access::write, offset, length, std::move(argument)};
}
inline Use in_place(uint32_t object, uint64_t offset, uint64_t length, std::string argument = "x") {
    return {object, Access::read_write, offset, length, std::move(argument)};
}

class Builder {
  public:
    // An object over an allocation of its own, or a second one over another's bytes.
    uint32_t buffer(std::string label, uint64_t length, bool tracked = true, bool filled = true) {
        trace.objects.push_back({std::move(label), trace.objects.size() + 1, 0, length, tracked});
        const auto id = static_cast<uint32_t>(trace.objects.size()) - 1;
        if (filled) trace.contents.push_back({id, Access::read, 0, length, {}});
        return id;
    }
    uint32_t view(std::string label, uint32_t of, uint64_t offset, uint64_t length,
                  bool tracked = true) {
        const Object& base = trace.objects[of];
        trace.objects.push_back(
            {std::move(label), base.allocation, base.offset + offset, length, tracked});
        return static_cast<uint32_t>(trace.objects.size()) - 1;
    }
    Builder& begin(bool concurrent = true) {
        trace.command_buffers.emplace_back();
        trace.host.push_back({HostEvent::Kind::begin, last(), true, {}, {}});
        return encoder(concurrent);
    }
    Builder& encoder(bool concurrent = true) {
        trace.command_buffers.back().encoders.push_back({concurrent, {}});
        return *this;
    }
    Builder& dispatch(std::string label, std::string kernel, std::vector<Use> uses,
                      int layer = -1) {
        add(Command::Kind::dispatch, trace.dispatches.size());
        trace.dispatches.push_back(
            {std::move(label), layer, std::move(kernel), std::move(uses), {}, false, {}});
        return *this;
    }
    Builder& barrier() {
        add(Command::Kind::barrier, trace.barriers.size());
        trace.barriers.push_back({true, {}, {}});
        return *this;
    }
    Builder& barrier(std::vector<uint32_t> objects) {
        add(Command::Kind::barrier, trace.barriers.size());
        trace.barriers.push_back({false, std::move(objects), {}});
        return *this;
    }
    Builder& commit() { return event(HostEvent::Kind::commit, last()); }
    Builder& wait(uint32_t commands, bool completed = true) {
        return event(HostEvent::Kind::wait, commands, completed);
    }
    Builder& host(Use use, std::string label = "test") {
        trace.host.push_back(
            {HostEvent::Kind::access, kNone, true, std::move(use), std::move(label)});
        return *this;
    }
    Builder& release(uint32_t object, bool reuse = false) {
        trace.host.push_back({reuse ? HostEvent::Kind::reuse : HostEvent::Kind::release,
                              kNone,
                              true,
                              {object, Access::read, 0, 0, {}},
                              {}});
        return *this;
    }

    std::vector<Finding> findings() const {
        validate(trace);
        return Checker(trace).findings();
    }
    // Kinds of all findings, REDUNDANT ones last: "WAR RAW | REDUNDANT".
    std::string kinds() const {
        std::string out;
        for (const Finding& finding : findings()) {
            out += (out.empty() ? "" : " ") + std::string(name(finding.kind));
        }
        for (const Finding& finding : Checker(trace).redundant_findings()) {
            out += (out.empty() ? "" : " ") + std::string(name(finding.kind));
        }
        return out;
    }

    Trace trace;

  private:
    uint32_t last() const { return static_cast<uint32_t>(trace.command_buffers.size()) - 1; }
    void add(Command::Kind kind, size_t index) {
        trace.command_buffers.back().encoders.back().commands.push_back(
            {kind, static_cast<uint32_t>(index)});
    }
    Builder& event(HostEvent::Kind kind, uint32_t commands, bool completed = true) {
        trace.host.push_back({kind, commands, completed, {}, {}});
        return *this;
    }
};

}  // namespace muser::audit
