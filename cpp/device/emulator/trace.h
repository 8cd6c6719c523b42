// What traced kernels touched, and what is wrong with it (see tracer.h for how it is seen).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muser::emulator {

enum class FindingKind : uint8_t {
    out_of_bounds,  // outside every bound buffer and threadgroup array
    undeclared,     // touched, not declared
    untouched,      // declared, not touched
    uninitialised,  // read before anything had been written
    race,           // two lanes, one of them writing, not ordered by a barrier
    divergent_barrier,
    divergent_simd,
    misaligned,
};
const char* name(FindingKind kind);

// A half-open byte range, relative to an argument's binding offset.
struct ByteRange {
    uint64_t begin = 0, end = 0;
    bool operator==(const ByteRange&) const = default;
};

// One lane's part in a finding.
struct LanePlace {
    uint32_t group[3] = {0, 0, 0};
    uint32_t thread = 0;
    bool write = false;
    std::string file;  // empty and 0 where the build has no line tables
    uint32_t line = 0;
    const void* site = nullptr;  // code address; null: unknown, or the lane had returned
};

struct Finding {
    FindingKind kind;
    uint64_t dispatch = 0;  // index in the command buffer
    std::string closure;    // label
    std::string kernel;
    int32_t argument = -1;  // index of the buffer; -1: a threadgroup array, or none
    std::string array;      // name of the threadgroup array
    ByteRange bytes;        // within the argument or array
    std::vector<LanePlace> lanes;
    // One sentence, then key=value lines.
    std::string text() const;
};

// The bytes of one argument that a dispatch read and wrote, ascending and merged.
struct ArgumentTrace {
    uint32_t argument = 0;
    std::vector<ByteRange> read, written;
};

struct DispatchTrace {
    std::string closure;
    std::string kernel;
    std::vector<ArgumentTrace> arguments;
};

struct TraceReport {
    std::vector<DispatchTrace> dispatches;
    std::vector<Finding> findings;
    uint64_t loads = 0, stores = 0;  // accesses seen
    uint64_t suppressed = 0;         // findings beyond the first of each kernel, argument and kind
};

}  // namespace muser::emulator
