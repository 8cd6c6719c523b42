// What an audit finds: a sentence for people, the same as stable key=value lines for programs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "audit/trace.h"

namespace muser::audit {

enum class Kind : uint8_t {
    raw,            // a read may come before the write it needs
    war,            // a write may come before an earlier read has finished
    waw,            // two writes in either order
    undeclared,     // touched, not declared
    untouched,      // declared, not touched
    uninitialised,  // read before any write
    order,          // a read's producer is not the one the graph states
    redundant,      // a barrier without which every pair it orders is still ordered
    host,           // one of a pair is the host
    lifetime,       // memory released or reused while in flight
};
const char* name(Kind kind);

// One side of a finding.
struct Place {
    std::string closure;  // "host" with the event's label for the host
    int layer = -1;
    std::string kernel, argument, buffer;
    Access access = Access::read;
    uint64_t begin = 0, end = 0;  // bytes of the buffer object
    uint32_t dispatch = kNone;    // index into Trace::dispatches
    uint32_t host_event = kNone;  // index into Trace::host
    uint32_t commands = kNone, encoder = kNone, object = kNone;
};

struct Finding {
    Kind kind = Kind::raw;
    std::string pair;  // RAW, WAR or WAW for host pairs
    std::vector<Place> places;
    std::string sentence;
    std::string ordering;  // what ordering there is, and why it does not cover the pair
    std::string repair;    // the smallest barrier, or other step, that would
    bool strict = false;   // rests on a reading that is stricter than Apple's header
    uint32_t barrier = kNone;

    // key=value lines, in a fixed order.
    std::vector<std::pair<std::string, std::string>> lines() const;
    // Sentence and lines.
    std::string text() const;
};

}  // namespace muser::audit
