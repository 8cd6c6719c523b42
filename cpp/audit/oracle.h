// The second opinion: brute force over bytes and pairs, written from docs/ordering.md alone. It
// shares the trace's data types with the checker and no code.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "audit/trace.h"

namespace muser::audit {

class Oracle {
  public:
    // `every_byte` looks at each byte of each allocation. Without it one byte stands for all that
    // exactly the same uses touch, which says the same and lets whole tokens be judged.
    explicit Oracle(const Trace& trace, bool every_byte = false);

    // An access: a dispatch or a host event, which of its uses, and the part that reads or writes.
    struct Touch {
        bool host = false;
        uint32_t index = 0, use = 0;
        bool write = false;
        auto operator<=>(const Touch&) const = default;
    };
    struct Hazard {
        Touch from, to;
        uint64_t allocation = 0, byte = 0;
        auto operator<=>(const Hazard&) const = default;
    };

    // Conflicting neighbours without an ordering, in the trace or in a mutant of it (the same
    // dispatches and host accesses, commands and host events moved or gone).
    std::vector<Hazard> hazards(const Trace& trace) const;
    // Bytes read before any write; and reads whose last writer is not the one stated.
    std::vector<Hazard> unwritten(const Trace& trace) const;
    std::vector<Hazard> wrong_producers(const Trace& trace) const;
    // Whether any of the three has an entry: whether a mutant must be reported.
    bool unsound(const Trace& trace) const;

    // Whether every two conflicting accesses, neighbours or not, are ordered by some chain of
    // orderings: what no hazard must imply.
    bool all_ordered(const Trace& trace) const;

  private:
    struct Step;
    struct Schedule;
    struct Found {
        std::vector<Hazard> hazards, unwritten, wrong;
    };
    Found examine(const Trace& trace, bool first_only) const;
    static bool ordered(const Trace& trace, const Schedule& order, const Touch& a, const Touch& b);
    static const Use& use_of(const Trace& trace, const Touch& touch);

    struct Byte {
        uint64_t allocation = 0, byte = 0;
        bool defined = false;
        std::vector<Touch> touches;
    };
    std::vector<Byte> bytes_;
};

}  // namespace muser::audit
