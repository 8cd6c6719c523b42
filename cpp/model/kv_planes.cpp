#include "model/kv_planes.h"

#include <algorithm>
#include <stdexcept>

#include "model/words.h"

namespace muser::model {
namespace {

void check_context(const Geometry& geometry, uint64_t context) {
    if (context == 0 || context > geometry.context) {
        throw ConfigError(words("context ", context, ": found ", context, ", expected 1 to ",
                                geometry.context, ", the model's own"),
                          {{"setting", "context"},
                           {"found", std::to_string(context)},
                           {"expected", words("1 to ", geometry.context)}});
    }
}

[[noreturn]] void context_full(uint64_t position, uint64_t context) {
    throw ContextFullError(
        words("position ", position, " does not fit the context of ", context),
        {{"position", std::to_string(position)}, {"context", std::to_string(context)}});
}

}  // namespace

KvPlane::KvPlane(uint64_t capacity, uint64_t window, uint32_t rollback_max)
    : capacity_(capacity), window_(window), rollback_max_(rollback_max) {
    if (capacity == 0 || capacity < window) {
        throw std::logic_error("KvPlane: a capacity below the window");
    }
}

uint64_t KvPlane::row_of(uint64_t position) const noexcept {
    // Rows follow positions around the ring, on both sides of the origin.
    if (position >= origin_logical_) {
        return (origin_physical_ + (position - origin_logical_) % capacity_) % capacity_;
    }
    const uint64_t back = (origin_logical_ - position) % capacity_;
    return (origin_physical_ + capacity_ - back) % capacity_;
}

KvView KvPlane::view(uint64_t position) const {
    const uint64_t next = next_position();
    const uint64_t first = is_local() && position >= window_ ? position - window_ + 1 : uint64_t{0};
    // The row that the next store replaces does not count: the query that replaces it no longer
    // sees it (first = next - window + 1).
    if (position > next || first < origin_logical_ || (!is_local() && position >= capacity_)) {
        throw std::logic_error(words("KvPlane::view: position ", position, " with rows ",
                                     origin_logical_, " to ", next));
    }
    return {.position = position,
            .first_position = first,
            .count = position - first + 1,
            .first_row = row_of(first),
            .write_row = row_of(position),
            .wrapped = is_local() && position >= window_};
}

KvAppend KvPlane::plan_append() const {
    const uint64_t position = next_position();
    const bool full = length_ == capacity_;
    if (full && !is_local()) context_full(position, capacity_);
    KvAppend plan{.position = position,
                  .write_row = row_of(position),
                  .overwrites = full,
                  .journaled = full && rollback_max_ != 0,
                  .overwritten = 0,
                  .journal_row = 0};
    if (plan.overwrites) plan.overwritten = origin_logical_;
    if (plan.journaled) plan.journal_row = plan.overwritten % rollback_max_;
    return plan;
}

KvAppend KvPlane::append() {
    const KvAppend plan = plan_append();
    if (plan.overwrites) {
        origin_physical_ = row_of(origin_logical_ + 1);
        ++origin_logical_;
        journal_length_ = std::min<uint64_t>(journal_length_ + 1, rollback_max_);
    } else {
        ++length_;
    }
    return plan;
}

uint64_t KvPlane::oldest_after_rollback(uint64_t n) const {
    const uint64_t written = next_position();
    if (n > written) {
        throw RollbackError(words("rollback of ", n, " rows: only ", written, " were ever written"),
                            {{"asked", std::to_string(n)}, {"held", std::to_string(written)}});
    }
    const uint64_t next = written - n;
    if (next == 0) return 0;  // nothing is held afterwards, so nothing has to come back
    const uint64_t wanted = is_local() && next > window_ ? next - window_ : 0;
    const uint64_t oldest = std::min(wanted, origin_logical_);
    if (origin_logical_ - oldest > journal_length_) {
        throw RollbackError(
            words("rollback of ", n, " rows needs ", origin_logical_ - oldest,
                  " overwritten rows back, the undo journal holds ", journal_length_),
            {{"asked", std::to_string(n)},
             {"needed", std::to_string(origin_logical_ - oldest)},
             {"journal", std::to_string(journal_length_)},
             {"journal_max", std::to_string(rollback_max_)}});
    }
    return oldest;
}

std::vector<KvMove> KvPlane::plan_rollback(uint64_t n) const {
    std::vector<KvMove> moves;
    const uint64_t oldest = oldest_after_rollback(n);
    // Lost rows at or after the new end are not wanted, and would land on rows that are.
    const uint64_t end = std::min(origin_logical_, next_position() - n);
    for (uint64_t p = oldest; p < end; ++p) {
        moves.push_back({.position = p, .journal_row = p % rollback_max_, .row = row_of(p)});
    }
    return moves;
}

void KvPlane::rollback(uint64_t n) {
    const uint64_t oldest = oldest_after_rollback(n);
    const uint64_t next = next_position() - n;
    origin_physical_ = row_of(oldest);
    journal_length_ -= std::min(journal_length_, origin_logical_ - oldest);
    origin_logical_ = oldest;
    length_ = next - oldest;
}

void KvPlane::restore(uint64_t length, uint64_t journal) {
    if (!is_local() && length > capacity_) context_full(length, capacity_);
    length_ = std::min(length, capacity_);
    origin_logical_ = length - length_;
    origin_physical_ = origin_logical_ % capacity_;
    journal_length_ = std::min({journal, uint64_t{rollback_max_}, origin_logical_});
}

KvPlanes::KvPlanes(const Geometry& geometry, uint64_t context, KvType type, uint32_t rollback_max)
    : context_(context),
      type_(type),
      row_bytes_(uint64_t{geometry.kv_width()} * kv_element_bytes(type)) {
    check_context(geometry, context);
    planes_.reserve(geometry.layers);
    for (const bool local : geometry.is_local) {
        if (local) {
            planes_.emplace_back(geometry.window, geometry.window, rollback_max);
        } else {
            planes_.emplace_back(context, 0, 0);
        }
    }
}

uint64_t KvPlanes::journal_bytes(size_t layer) const {
    return plane(layer).rollback_max() * row_bytes_;
}

std::vector<KvAppend> KvPlanes::plan_append() const {
    check_room(position_ + 1);
    std::vector<KvAppend> plans;
    plans.reserve(planes_.size());
    for (const KvPlane& plane : planes_) plans.push_back(plane.plan_append());
    return plans;
}

void KvPlanes::append() {
    // One check for all layers: a model of local layers alone has no plane that fills up.
    check_room(position_ + 1);
    for (KvPlane& plane : planes_) plane.append();
    ++position_;
}

std::vector<KvPlanes::Move> KvPlanes::plan_rollback(uint64_t n) const {
    std::vector<Move> moves;
    for (size_t layer = 0; layer < planes_.size(); ++layer) {
        for (const KvMove& move : planes_[layer].plan_rollback(n)) moves.push_back({layer, move});
    }
    return moves;
}

void KvPlanes::rollback(uint64_t n) {
    // All layers are asked before the first one changes.
    for (const KvPlane& plane : planes_) plane.oldest_after_rollback(n);
    for (KvPlane& plane : planes_) plane.rollback(n);
    position_ -= n;
}

uint64_t KvPlanes::rows_beyond(uint64_t length) const {
    if (length > position_) {
        throw RollbackError(
            words("truncation to ", length, " rows: only ", position_, " are held"),
            {{"asked", std::to_string(length)}, {"held", std::to_string(position_)}});
    }
    return position_ - length;
}

void KvPlanes::restore(uint64_t length, uint64_t journal) {
    check_room(length);
    for (KvPlane& plane : planes_) plane.restore(length, journal);
    position_ = length;
}

void KvPlanes::check_room(uint64_t length) const {
    if (length > context_) context_full(length - 1, context_);
}

MemoryEstimate memory_estimate(const Geometry& geometry, uint64_t context, KvType type,
                               uint64_t weight_bytes, uint32_t rollback_max) {
    check_context(geometry, context);
    const uint64_t pair = 2 * uint64_t{geometry.kv_width()} * kv_element_bytes(type);  // K and V
    const uint64_t local = geometry.local_layers();
    MemoryEstimate bytes;
    bytes.weights_mapped = weight_bytes;
    bytes.kv_local = local * geometry.window * pair;
    bytes.kv_global = geometry.global_layers() * context * pair;
    bytes.journal = local * rollback_max * pair;
    bytes.shadow = local != 0 ? geometry.window * pair : 0;
    return bytes;
}

}  // namespace muser::model
