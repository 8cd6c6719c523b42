#include "device/emulator/tracer.h"

#include <algorithm>
#include <cstring>

namespace muser::emulator {

namespace {

thread_local Tracer* t_tracer = nullptr;

uint32_t step_word(const stream::CommandBuffer& commands, const stream::Dispatch& dispatch,
                   uint32_t argument, uint32_t word) {
    for (uint32_t b = 0; b < dispatch.binding_count; ++b) {
        const stream::Binding& binding = commands.bindings[dispatch.first_binding + b];
        if (binding.argument != argument) continue;
        uint32_t value = 0;
        std::memcpy(&value, binding.buffer->contents + binding.offset + 4 * uint64_t{word}, 4);
        return value;
    }
    return 0;
}

template <typename Insert>
void for_each_declared_range(const stream::CommandBuffer& commands,
                             const stream::Dispatch& dispatch, const stream::DeclaredAccess& access,
                             Insert insert) {
    const stream::RowRule& rule = access.rows;
    if (!rule.active) {
        insert(access.offset, access.offset + access.length);
        return;
    }
    const auto word = [&](uint32_t which, uint32_t otherwise) {
        return which == stream::RowRule::kConstant
                   ? otherwise
                   : step_word(commands, dispatch, rule.step_argument, which);
    };
    const uint64_t first = word(rule.first_word, 0);
    const uint64_t count = word(rule.count_word, 1);
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t row = rule.capacity == 0 ? first + i : (first + i) % rule.capacity;
        const uint64_t begin = row * rule.stride;
        if (begin >= access.length) continue;
        insert(access.offset + begin, access.offset + std::min(begin + rule.stride, access.length));
    }
}

bool same_lane(const ByteAccess& a, const ByteAccess& b) {
    return a.group == b.group && a.thread == b.thread;
}

// Not ordered: by different lanes, and no barrier between them.
bool unordered(const ByteAccess& before, const ByteAccess& now) {
    if (before.site == nullptr || same_lane(before, now)) return false;
    return before.group != now.group || before.epoch == now.epoch;
}

}  // namespace

Tracer* Tracer::current() { return t_tracer; }

void ByteSet::insert(uint64_t begin, uint64_t end) {
    if (end > bits_.size() * 64) bits_.resize((end + 63) / 64, 0);
    for (uint64_t i = begin; i < end;) {
        if ((i & 63) == 0 && i + 64 <= end) {
            bits_[i / 64] = ~uint64_t{0};
            i += 64;
        } else {
            bits_[i / 64] |= uint64_t{1} << (i & 63);
            ++i;
        }
    }
}

std::vector<ByteRange> ByteSet::ranges() const { return minus({}); }

std::vector<ByteRange> ByteSet::minus(const ByteSet& other) const {
    std::vector<ByteRange> out;
    for (uint64_t w = 0; w < bits_.size(); ++w) {
        const uint64_t have = bits_[w] & ~(w < other.bits_.size() ? other.bits_[w] : 0);
        if (have == 0) continue;
        for (uint64_t bit = 0; bit < 64; ++bit) {
            if ((have >> bit & 1) == 0) continue;
            const uint64_t at = w * 64 + bit;
            if (!out.empty() && out.back().end == at) {
                ++out.back().end;
            } else {
                out.push_back({at, at + 1});
            }
        }
    }
    return out;
}

void Tracer::begin_dispatch(const stream::CommandBuffer& commands, const stream::Dispatch& dispatch,
                            const KernelEntry* kernel) {
    commands_ = &commands;
    dispatch_ = &dispatch;
    kernel_ = kernel;
    dispatch_index_ = static_cast<uint64_t>(&dispatch - commands.dispatches.data());
    arguments_.clear();
    last_argument_ = 0;
    device_history_.clear();
    faulted_ = false;
    for (uint32_t b = 0; b < dispatch.binding_count; ++b) {
        const stream::Binding& binding = commands.bindings[dispatch.first_binding + b];
        Argument& argument = arguments_.emplace_back();
        argument.index = binding.argument;
        argument.writable = (kernel->writable >> (binding.argument - 1) & 1) != 0;
        argument.begin = binding.buffer->contents + binding.offset;
        argument.end = binding.buffer->contents + binding.buffer->length;
        argument.allocation = memory_.of(*binding.buffer);
        argument.label = binding.buffer->label;
    }
    for (Argument& argument : arguments_) {
        argument.raced =
            std::any_of(arguments_.begin(), arguments_.end(), [&](const Argument& other) {
                return other.writable && other.begin < argument.end && argument.begin < other.end;
            });
    }
    declare(commands, dispatch);
}

void Tracer::declare(const stream::CommandBuffer& commands, const stream::Dispatch& dispatch) {
    for (uint32_t a = 0; a < dispatch.access_count; ++a) {
        const stream::DeclaredAccess& access = commands.accesses[dispatch.first_access + a];
        for (Argument& argument : arguments_) {
            if (argument.index != access.argument) continue;
            const auto bits = static_cast<uint8_t>(access.access);
            for_each_declared_range(commands, dispatch, access, [&](uint64_t begin, uint64_t end) {
                if ((bits & 1) != 0) argument.declared_read.insert(begin, end);
                if ((bits & 2) != 0) {
                    argument.declared_written.insert(begin, end);
                }
            });
        }
    }
}

void Tracer::begin_group(const Threadgroup&) {
    arena_history_.assign(Threadgroup::kArenaBytes, {});
    arena_written_.resize(Threadgroup::kArenaBytes);
}

void Tracer::enter_group(Threadgroup& group) {
    group_ = &group;
    t_tracer = this;
}

void Tracer::end_group(const Threadgroup& group) {
    t_tracer = nullptr;
    const GroupFault& fault = group.fault();
    faulted_ = faulted_ || fault.kind != GroupFault::Kind::none;
    if (fault.kind == GroupFault::Kind::divergent_barrier ||
        fault.kind == GroupFault::Kind::divergent_simd) {
        const bool barrier = fault.kind == GroupFault::Kind::divergent_barrier;
        Finding* finding =
            add(barrier ? FindingKind::divergent_barrier : FindingKind::divergent_simd, nullptr, "",
                {});
        if (finding != nullptr) {
            finding->lanes.push_back(place_of(group, fault.lane, fault.site));
            finding->lanes.push_back(place_of(group, fault.other, fault.other_site));
        }
    }
    if (fault.kind == GroupFault::Kind::too_much_memory) {
        add(FindingKind::out_of_bounds, nullptr, "threadgroup memory", {0, fault.other});
    }
    group_ = nullptr;
}

Tracer::Argument* Tracer::argument_at(const std::byte* at, size_t bytes, bool write) {
    // Where two arguments share memory, the one that declared the access is meant.
    Argument* candidate = nullptr;
    for (size_t i = 0; i < arguments_.size(); ++i) {
        Argument& argument = arguments_[(last_argument_ + i) % arguments_.size()];
        if (at < argument.begin || at + bytes > argument.end) continue;
        const auto offset = static_cast<uint64_t>(at - argument.begin);
        const ByteSet& declared = write ? argument.declared_written : argument.declared_read;
        if (declared.contains(offset)) {
            last_argument_ = static_cast<size_t>(&argument - arguments_.data());
            return &argument;
        }
        if (candidate == nullptr || (write && argument.writable && !candidate->writable)) {
            candidate = &argument;
        }
    }
    return candidate;
}

ByteHistory& Tracer::history_of(const std::byte* at) {
    const auto address = reinterpret_cast<uintptr_t>(at);
    std::unique_ptr<History>& page = device_history_[address / kPage];
    if (page == nullptr) page = std::make_unique<History>(kPage);
    return (*page)[address % kPage];
}

void Tracer::access(const void* address, size_t bytes, size_t alignment, bool write,
                    const void* site) {
    if (group_ == nullptr || bytes == 0) return;
    const auto* at = static_cast<const std::byte*>(address);
    if (group_->on_a_stack(at)) return;
    if (at >= group_->arena() && at < group_->arena() + Threadgroup::kArenaBytes) {
        ++(write ? report_.stores : report_.loads);
        arena_access(at, bytes, write, site);
        return;
    }
    Argument* argument = argument_at(at, bytes, write);
    if (argument == nullptr) {
        const std::byte* args = commands_->args.data();
        if (at >= args && at + bytes <= args + commands_->args.size()) return;
        ++(write ? report_.stores : report_.loads);
        outside(at, bytes, write, site);
        return;
    }
    ++(write ? report_.stores : report_.loads);

    const auto offset = static_cast<uint64_t>(at - argument->begin);
    (write ? argument->written : argument->read).insert(offset, offset + bytes);
    const ByteSet& declared = write ? argument->declared_written : argument->declared_read;
    for (uint64_t i = offset; i < offset + bytes; ++i) {
        if (declared.contains(i)) continue;
        if (Finding* finding =
                add(FindingKind::undeclared, argument, "", {offset, offset + bytes})) {
            finding->lanes.push_back(place_here(write, site));
        }
        break;
    }
    if (reinterpret_cast<uintptr_t>(at) % alignment != 0) {
        if (Finding* finding =
                add(FindingKind::misaligned, argument, "", {offset, offset + bytes})) {
            finding->lanes.push_back(place_here(write, site));
        }
        stop_lane(site);  // this processor may fault, too
    }
    if (Allocation* allocation = argument->allocation.get()) {
        const auto first = static_cast<uint64_t>(at - allocation->begin);
        if (write) {
            allocation->mark_written(first, bytes);
        } else {
            for (uint64_t i = 0; i < bytes; ++i) {
                if (!allocation->uninitialised(first + i)) continue;
                if (Finding* finding =
                        add(FindingKind::uninitialised, argument, "", {offset, offset + bytes})) {
                    finding->lanes.push_back(place_here(write, site));
                }
                break;
            }
        }
    }
    if (!argument->raced) return;
    const Lane& lane = *current_lane();
    const ByteAccess now{site, static_cast<uint32_t>(group_->serial()),
                         static_cast<uint16_t>(lane.thread),
                         static_cast<uint16_t>(group_->device_epoch())};
    for (size_t i = 0; i < bytes; ++i) {
        check_race(history_of(at + i), now, write, argument, "", offset + i);
    }
}

void Tracer::arena_access(const std::byte* at, size_t bytes, bool write, const void* site) {
    const auto first = static_cast<uint64_t>(at - group_->arena());
    const ThreadgroupArray* array = nullptr;
    for (const ThreadgroupArray& candidate : group_->arrays()) {
        if (at >= candidate.begin && at + bytes <= candidate.begin + candidate.bytes) {
            array = &candidate;
        }
    }
    if (array == nullptr) {
        // The array that it runs over, or under.
        const ThreadgroupArray* nearest = nullptr;
        for (const ThreadgroupArray& candidate : group_->arrays()) {
            if (nearest == nullptr || candidate.begin <= at) nearest = &candidate;
        }
        const auto offset = nearest == nullptr ? first : static_cast<uint64_t>(at - nearest->begin);
        if (Finding* finding = add(FindingKind::out_of_bounds, nullptr,
                                   nearest == nullptr ? "threadgroup memory" : nearest->name,
                                   {offset, offset + bytes})) {
            finding->lanes.push_back(place_here(write, site));
        }
        return;
    }
    const auto offset = static_cast<uint64_t>(at - array->begin);
    if (write) {
        arena_written_.insert(first, first + bytes);
    } else {
        for (uint64_t i = first; i < first + bytes; ++i) {
            if (arena_written_.contains(i)) continue;
            if (Finding* finding = add(FindingKind::uninitialised, nullptr, array->name,
                                       {offset, offset + bytes})) {
                finding->lanes.push_back(place_here(write, site));
            }
            break;
        }
    }
    const Lane& lane = *current_lane();
    const ByteAccess now{site, static_cast<uint32_t>(group_->serial()),
                         static_cast<uint16_t>(lane.thread),
                         static_cast<uint16_t>(group_->threadgroup_epoch())};
    for (size_t i = 0; i < bytes; ++i) {
        check_race(arena_history_[first + i], now, write, nullptr, array->name, offset + i);
    }
}

void Tracer::outside(const std::byte* at, size_t bytes, bool write, const void* site) {
    if (!write && in_image(at)) return;
    const std::shared_ptr<Allocation> allocation = memory_.find(at);
    // The argument whose buffer it runs over: the one that ends (or begins) in this allocation.
    Argument* meant = nullptr;
    for (Argument& argument : arguments_) {
        if (allocation != nullptr && argument.allocation == allocation) {
            const bool better =
                meant == nullptr || (write && argument.writable && !meant->writable);
            if (better) meant = &argument;
        }
    }
    ByteRange range{};
    if (meant != nullptr) {
        range.begin = static_cast<uint64_t>(at - meant->begin);
        range.end = range.begin + bytes;
    }
    if (Finding* finding = add(FindingKind::out_of_bounds, meant, "", range)) {
        finding->lanes.push_back(place_here(write, site));
    }
    // In a guard zone or another live buffer the access does no harm beyond its own effect.
    // Anywhere else it might end the process.
    if (allocation == nullptr) {
        stop_lane(site);
    }
}

// The access that a hook announces has not happened yet; this way it never does.
void Tracer::stop_lane(const void* site) {
    GroupFault fault;
    fault.kind = GroupFault::Kind::stopped;
    fault.lane = current_lane()->thread;
    fault.site = site;
    group_->stop(fault);
}

void Tracer::check_race(ByteHistory& history, const ByteAccess& now, bool write,
                        const Argument* argument, const char* array, uint64_t offset) {
    const ByteAccess* against = nullptr;
    bool against_write = false;
    if (unordered(history.write, now)) {
        against = &history.write;
        against_write = true;
    } else if (write) {
        for (const ByteAccess* read : {&history.first_read, &history.read, &history.other_read}) {
            if (unordered(*read, now)) against = read;
        }
    }
    if (against != nullptr) {
        if (Finding* finding = add(FindingKind::race, argument, array, {offset, offset + 1})) {
            finding->lanes.push_back(place(*against, against_write));
            finding->lanes.push_back(place_here(write, now.site));
        }
    }
    if (write) {
        history.write = now;
        return;
    }
    if (history.first_read.site == nullptr) history.first_read = now;
    if (history.read.site != nullptr && !same_lane(history.read, now)) {
        history.other_read = history.read;
    }
    history.read = now;
}

void Tracer::end_dispatch() {
    DispatchTrace trace;
    trace.closure = commands_->labels.empty() ? "" : commands_->labels[dispatch_->label];
    trace.kernel = kernel_->name;
    for (const Argument& argument : arguments_) {
        // After a fault the rest of the dispatch did not run.
        if (!faulted_) {
            compare(argument, false);
            compare(argument, true);
        }
        trace.arguments.push_back(
            {argument.index, argument.read.ranges(), argument.written.ranges()});
    }
    report_.dispatches.push_back(std::move(trace));
}

void Tracer::compare(const Argument& argument, bool write) {
    const ByteSet& declared = write ? argument.declared_written : argument.declared_read;
    const std::vector<ByteRange> missing = declared.minus(write ? argument.written : argument.read);
    if (missing.empty()) return;
    if (Finding* finding =
            add(FindingKind::untouched, &argument, write ? "write" : "read", missing.front())) {
        finding->array.clear();
        LanePlace where;
        where.write = write;
        finding->lanes.push_back(where);
    }
}

Finding* Tracer::add(FindingKind kind, const Argument* argument, const std::string& array,
                     ByteRange bytes) {
    const int32_t index = argument == nullptr ? -1 : static_cast<int32_t>(argument->index);
    if (!told_.insert({kernel_->name, index, array, kind}).second) {
        ++report_.suppressed;
        return nullptr;
    }
    Finding& finding = report_.findings.emplace_back();
    finding.kind = kind;
    finding.dispatch = dispatch_index_;
    finding.closure = commands_->labels.empty() ? "" : commands_->labels[dispatch_->label];
    finding.kernel = kernel_->name;
    finding.argument = index;
    finding.array = array;
    finding.bytes = bytes;
    return &finding;
}

LanePlace Tracer::place(const ByteAccess& access, bool write) const {
    LanePlace out;
    const uint64_t x = dispatch_->groups.x;
    const uint64_t y = dispatch_->groups.y;
    out.group[0] = static_cast<uint32_t>(access.group % x);
    out.group[1] = static_cast<uint32_t>(access.group / x % y);
    out.group[2] = static_cast<uint32_t>(access.group / x / y);
    out.thread = access.thread;
    out.write = write;
    out.site = access.site;
    return out;
}

LanePlace Tracer::place_here(bool write, const void* site) const {
    LanePlace out = place_of(*group_, current_lane()->thread, site);
    out.write = write;
    return out;
}

LanePlace Tracer::place_of(const Threadgroup& group, uint32_t thread, const void* site) const {
    LanePlace out;
    out.group[0] = group.launch().group.x;
    out.group[1] = group.launch().group.y;
    out.group[2] = group.launch().group.z;
    out.thread = thread;
    out.site = site;
    return out;
}

void Tracer::move_to(TraceReport& report) {
    // Not when it is found: that is on a lane's small stack.
    for (Finding& finding : report_.findings) {
        for (LanePlace& lane : finding.lanes) {
            if (lane.site == nullptr) continue;
            const SourcePlace source = source_of(lane.site);
            lane.file = source.file;
            lane.line = source.line;
        }
    }
    told_.clear();
    const auto append = [](auto& to, auto& from) {
        std::move(from.begin(), from.end(), std::back_inserter(to));
        from.clear();
    };
    append(report.dispatches, report_.dispatches);
    append(report.findings, report_.findings);
    report.loads += report_.loads;
    report.stores += report_.stores;
    report.suppressed += report_.suppressed;
    report_ = {};
}

}  // namespace muser::emulator
