// The interval checker: which accesses conflict, what orders each such pair, and what is left.
//
// Two accesses of one byte conflict when one of them writes. The checker keeps, per interval of
// bytes, the last write and the reads since, and asks for an ordering between each new access and
// those: every pair of conflicting accesses follows from such neighbours. Each pair must be covered
// by one ordering of its own (docs/ordering.md):
//   host before device      the commit
//   device before host      a completed wait for that very command buffer
//   two command buffers     one tracked buffer object on both sides, or a wait between
//   two encoders            one tracked buffer object on both sides
//   one serial encoder      always
//   one concurrent encoder  a broad barrier between, or one that names both objects
#pragma once

#include <cstdint>
#include <vector>

#include "audit/finding.h"
#include "audit/trace.h"

namespace muser::audit {

// An access in program order: dispatches in commit order, host accesses where the host makes them.
struct Node {
    uint32_t dispatch = kNone;                   // or
    uint32_t host_event = kNone;                 // index into Trace::host
    uint32_t commands = kNone, encoder = kNone;  // encoder: counted over the whole trace
    uint32_t position = 0;                       // command index within its encoder
};

struct AccessRef {
    uint32_t node = 0, object = 0;
    uint32_t use = 0;  // index into the dispatch's uses
    bool write = false;
};

struct Pair {
    uint32_t from = 0, to = 0;    // indices into Analysis::accesses
    uint64_t begin = 0, end = 0;  // bytes of the allocation
};

// What orders a pair.
struct Cover {
    bool edge = false;               // something other than a barrier does
    std::vector<uint32_t> barriers;  // each of which would do alone
    explicit operator bool() const { return edge || !barriers.empty(); }
};

// A read of bytes that nothing in the trace has written before.
struct Unwritten {
    uint32_t access = 0;
    uint64_t begin = 0, end = 0;  // bytes of the allocation
};
struct WrongProducer {
    uint32_t access = 0;
    uint64_t begin = 0, end = 0;
    uint32_t found = kNone;  // node that wrote last; kNone: nobody
    uint32_t expected = 0;   // index into the dispatch's producers
};

struct Analysis {
    std::vector<Node> nodes;
    std::vector<AccessRef> accesses;
    std::vector<Pair> pairs;
    std::vector<Unwritten> unwritten;  // nor did they hold anything: UNINITIALISED
    std::vector<Unwritten> held;       // they held something from the start
    std::vector<WrongProducer> wrong;
};

class Checker {
  public:
    explicit Checker(const Trace& trace);

    const Analysis& analysis() const { return analysis_; }
    Cover cover(const Pair& pair) const;
    // All but REDUNDANT, in program order of their later side.
    std::vector<Finding> findings() const;
    // True as soon as one is known; no texts are made.
    bool any() const;
    // Barriers that can go, each alone.
    std::vector<uint32_t> redundant() const;
    std::vector<Finding> redundant_findings() const;
    // Barriers that can all go together, found greedily from the last to the first.
    std::vector<uint32_t> redundant_together() const;

  private:
    struct Site {  // of a barrier
        uint32_t encoder = kNone, position = 0, commands = kNone;
    };
    void lay_out();
    void analyse();
    void check_producer(uint32_t access, const std::vector<uint32_t>& writers, bool defined,
                        uint64_t begin, uint64_t end);
    bool covered_by_edge(const AccessRef& from, const AccessRef& to) const;
    bool same_encoder(const AccessRef& from, const AccessRef& to) const;
    Place place(uint32_t access, uint64_t begin, uint64_t end) const;
    Finding finding_of(const Pair& pair) const;
    void explain(const Pair& pair, Finding& finding) const;
    void add_declaration_findings(std::vector<Finding>& out) const;
    void add_lifetime_findings(std::vector<Finding>& out) const;

    const Trace& trace_;
    Analysis analysis_;
    std::vector<Site> sites_;                           // per barrier
    std::vector<std::vector<uint32_t>> broad_, named_;  // per encoder: barriers in order
    std::vector<bool> concurrent_;                      // per encoder
    // Per command buffer: host event index of begin, commit and of the first completed wait.
    std::vector<uint32_t> begun_, committed_, waited_;
};

}  // namespace muser::audit
