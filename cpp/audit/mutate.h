// Mutants of a sound trace, each judged by the checker and by the oracle: the auditor's own test,
// run on the very graph that it audits.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "audit/trace.h"

namespace muser::audit {

enum class MutantKind : uint8_t {
    delete_barrier,
    drop_resource,  // one object from a barrier's list
    move_later,     // a dispatch to behind the next barrier
    move_earlier,   // a dispatch to before the last barrier
    swap_closures,  // adjacent ones, one of which writes what the other touches
    delete_wait,
    late_write,  // a host write to behind the next commit
    untrack,     // one buffer object loses its tracking
    count,
};
const char* name(MutantKind kind);

struct Mutant {
    MutantKind kind = MutantKind::delete_barrier;
    uint32_t commands = 0, encoder = 0;  // encoder: within the command buffer
    uint32_t position = 0;               // command, or host event
    uint32_t other = 0;                  // position moved to; end of the first closure
    uint32_t begin = 0, end = 0;         // of the second closure
    uint32_t barrier = kNone, object = kNone, dispatch = kNone;
};

// All mutants of a trace.
std::vector<Mutant> mutants(const Trace& trace);
// "delete_barrier 3 before blk.0.qkvg".
std::string describe(const Trace& trace, const Mutant& mutant);

// The trace is the mutant while this lives, and itself again afterwards.
class Mutated {
  public:
    Mutated(Trace& trace, const Mutant& mutant);
    ~Mutated();
    Mutated(const Mutated&) = delete;
    Mutated& operator=(const Mutated&) = delete;

  private:
    Trace& trace_;
    const Mutant mutant_;
    std::vector<Command> commands_;
    std::vector<HostEvent> host_;
    std::vector<uint32_t> objects_;
};

struct MutationReport {
    struct Count {
        uint64_t total = 0, reported = 0, unsound = 0;  // unsound: by the oracle
    };
    std::array<Count, static_cast<size_t>(MutantKind::count)> kinds;
    uint64_t total = 0, reported = 0;
    uint64_t missed = 0;               // unsound by the oracle, not reported
    uint64_t extra = 0;                // reported, sound by the oracle
    uint64_t silent_redundant = 0;     // deletions that are not reported
    bool silent_is_redundant = false;  // they are exactly the barriers listed REDUNDANT
    std::vector<uint32_t> together;    // barriers that can all go
    bool together_sound = false;       // by checker and oracle, without all of them
    std::vector<std::string> disagreements;
};

// The trace must be without findings but REDUNDANT and have its producers stated.
MutationReport run_mutants(Trace trace);

}  // namespace muser::audit
