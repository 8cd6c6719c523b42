#include "device/emulator/trace.h"

#include <string>

namespace muser::emulator {

const char* name(FindingKind kind) {
    switch (kind) {
        case FindingKind::out_of_bounds:
            return "OUT_OF_BOUNDS";
        case FindingKind::undeclared:
            return "UNDECLARED";
        case FindingKind::untouched:
            return "UNTOUCHED";
        case FindingKind::uninitialised:
            return "UNINITIALISED";
        case FindingKind::race:
            return "RACE";
        case FindingKind::divergent_barrier:
            return "DIVERGENT_BARRIER";
        case FindingKind::divergent_simd:
            return "DIVERGENT_SIMD";
        case FindingKind::misaligned:
            return "MISALIGNED";
    }
    return "";
}

namespace {

std::string position(const LanePlace& lane) {
    return std::to_string(lane.group[0]) + "," + std::to_string(lane.group[1]) + "," +
           std::to_string(lane.group[2]) + "/" + std::to_string(lane.thread);
}

std::string target(const Finding& finding) {
    if (!finding.array.empty()) return "threadgroup array '" + finding.array + "'";
    if (finding.argument >= 0) return "argument " + std::to_string(finding.argument);
    return "memory that no argument names";
}

std::string sentence(const Finding& finding) {
    const std::string where = finding.kernel + ", " + target(finding) + ": ";
    const bool write = !finding.lanes.empty() && finding.lanes.back().write;
    const std::string did = write ? "writes" : "reads";
    switch (finding.kind) {
        case FindingKind::out_of_bounds:
            if (finding.lanes.empty()) {
                return finding.kernel + ": its threadgroup arrays take more than " +
                       std::to_string(finding.bytes.end) + " bytes.";
            }
            return where + "a lane " + did + " outside it.";
        case FindingKind::undeclared:
            return where + "a lane " + did + " bytes that the launcher did not declare.";
        case FindingKind::untouched:
            return where + "bytes declared as " + (write ? "written" : "read") +
                   " were not touched.";
        case FindingKind::uninitialised:
            return where + "a lane reads bytes that nothing has written.";
        case FindingKind::race:
            return where + "two lanes meet in a byte with no barrier between them.";
        case FindingKind::divergent_barrier:
            return finding.kernel + ": lanes of a threadgroup disagree about a barrier.";
        case FindingKind::divergent_simd:
            return finding.kernel + ": lanes of a SIMD group disagree about a SIMD operation.";
        case FindingKind::misaligned:
            return where + "a lane " + did + " at an address that its size does not divide.";
    }
    return {};
}

}  // namespace

std::string Finding::text() const {
    std::string out = sentence(*this);
    const auto line = [&](const char* key, const std::string& value) {
        out.append("\n").append(key).append("=").append(value);
    };
    line("kind", name(kind));
    line("kernel", kernel);
    line("closure", closure);
    line("dispatch", std::to_string(dispatch));
    if (argument >= 0) line("argument", std::to_string(argument));
    if (!array.empty()) line("array", array);
    line("bytes", std::to_string(bytes.begin) + ".." + std::to_string(bytes.end));
    for (const LanePlace& lane : lanes) {
        std::string text = position(lane) + (lane.write ? " write" : " read");
        if (lane.line != 0) {
            const size_t slash = lane.file.rfind('/');
            text.append(" ").append(lane.file, slash == std::string::npos ? 0 : slash + 1);
            text.append(":").append(std::to_string(lane.line));
        }
        line("lane", text);
    }
    return out;
}

}  // namespace muser::emulator
