// Sees every load and store of traced kernels and judges them.
//
// The traced kernels are compiled with -fsanitize=thread but linked against our own __tsan_* hooks
// (hooks.cpp), each of which calls Tracer::access on the lane's fiber. Threadgroups run one at a
// time here; races are found from epochs, not from luck: two accesses of a byte by different lanes,
// one of them a store, are a race unless a barrier for that memory lies between them within one
// threadgroup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "device/command_stream.h"
#include "device/emulator/kernel_registry.h"
#include "device/emulator/memory.h"
#include "device/emulator/threadgroup.h"
#include "device/emulator/trace.h"

namespace muser::emulator {

// One access of a byte, as far as races need it.
struct ByteAccess {
    const void* site = nullptr;  // null: none
    uint32_t group = 0;          // linear index
    uint16_t thread = 0;
    uint16_t epoch = 0;
};
struct ByteHistory {
    ByteAccess write;
    // The first read of all, for another threadgroup's write; the last two by different lanes, for
    // a write in their epoch.
    ByteAccess first_read, read, other_read;
};

// A bit per byte.
class ByteSet {
  public:
    void resize(uint64_t bytes) { bits_.assign((bytes + 63) / 64, 0); }
    void insert(uint64_t begin, uint64_t end);
    bool contains(uint64_t at) const {
        return at / 64 < bits_.size() && (bits_[at / 64] >> (at & 63) & 1) != 0;
    }
    // The ranges, ascending; and the first range of what this has and `other` has not.
    std::vector<ByteRange> ranges() const;
    std::vector<ByteRange> minus(const ByteSet& other) const;

  private:
    std::vector<uint64_t> bits_;
};

class Tracer {
  public:
    explicit Tracer(Memory& memory) : memory_(memory) {}

    void begin_dispatch(const stream::CommandBuffer& commands, const stream::Dispatch& dispatch,
                        const KernelEntry* kernel);
    void begin_group(const Threadgroup& group);
    void enter_group(Threadgroup& group);  // hooks of this thread come here from now on
    void end_group(const Threadgroup& group);
    void end_dispatch();
    // Adds what has been seen since the last call to `report`.
    void move_to(TraceReport& report);

    // From a hook.
    void access(const void* address, size_t bytes, size_t alignment, bool write, const void* site);
    static Tracer* current();

  private:
    struct Argument {
        uint32_t index = 0;
        bool writable = false;       // by the kernel's parameter type
        bool raced = false;          // some argument that the kernel may write shares this memory
        std::byte* begin = nullptr;  // of the binding
        std::byte* end = nullptr;    // of the buffer
        std::shared_ptr<Allocation> allocation;
        ByteSet declared_read, declared_written, read, written;
        std::string label;
    };
    using History = std::vector<ByteHistory>;

    Argument* argument_at(const std::byte* at, size_t bytes, bool write);
    void arena_access(const std::byte* at, size_t bytes, bool write, const void* site);
    void outside(const std::byte* at, size_t bytes, bool write, const void* site);
    [[noreturn]] void stop_lane(const void* site);
    void check_race(ByteHistory& history, const ByteAccess& now, bool write,
                    const Argument* argument, const char* array, uint64_t offset);
    void declare(const stream::CommandBuffer& commands, const stream::Dispatch& dispatch);
    void compare(const Argument& argument, bool write);
    // Null when this kernel, argument and kind has had its finding.
    Finding* add(FindingKind kind, const Argument* argument, const std::string& array,
                 ByteRange bytes);
    LanePlace place(const ByteAccess& access, bool write) const;
    LanePlace place_here(bool write, const void* site) const;
    LanePlace place_of(const Threadgroup& group, uint32_t thread, const void* site) const;

    static constexpr size_t kPage = 1024;
    ByteHistory& history_of(const std::byte* at);

    Memory& memory_;
    Threadgroup* group_ = nullptr;
    const stream::CommandBuffer* commands_ = nullptr;
    const stream::Dispatch* dispatch_ = nullptr;
    const KernelEntry* kernel_ = nullptr;
    uint64_t dispatch_index_ = 0;
    std::vector<Argument> arguments_;
    size_t last_argument_ = 0;
    bool faulted_ = false;  // a threadgroup of this dispatch did not come to its end
    // Device memory by page of address; only memory that the dispatch may write.
    std::unordered_map<uintptr_t, std::unique_ptr<History>> device_history_;
    History arena_history_;
    ByteSet arena_written_;
    std::set<std::tuple<std::string, int32_t, std::string, FindingKind>> told_;
    TraceReport report_;
};

// File and line of a code address where the build has line tables and addr2line is at hand.
struct SourcePlace {
    std::string file;
    uint32_t line = 0;
};
SourcePlace source_of(const void* site);
// Whether the address lies in the program or one of its libraries: constants, not memory of ours.
bool in_image(const void* address);

}  // namespace muser::emulator
