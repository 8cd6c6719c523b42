// KV planes: where each position's row lives, what a query sees, and what can be taken back.
//
// Bookkeeping only: no row is read, written or moved here. Each layer has a K plane and a V
// plane of the same shape and state, rows laid out [physical row][kv head][head_dim].
//   global layer: capacity = context, all positions visible.
//   local layer:  a ring, capacity = window; the row of position p replaces that of p - window.
// A ring keeps the last `rollback_max` rows that were overwritten in an undo journal (K and V
// each), so that a rollback can put them back.
#pragma once

#include <cstdint>
#include <vector>

#include "errors.h"
#include "model/geometry.h"

namespace muser::model {

enum class KvType : uint8_t { F16, F32 };
constexpr uint64_t kv_element_bytes(KvType type) noexcept { return type == KvType::F16 ? 2 : 4; }

inline constexpr uint32_t default_rollback_max = 64;

// What the query at one position sees, in its plane, once its own row is stored.
struct KvView {
    uint64_t position;        // of the query
    uint64_t first_position;  // oldest visible key
    uint64_t count;           // visible keys, the query's own included
    uint64_t first_row;       // physical row of first_position
    uint64_t write_row;       // physical row of the query's own key
    bool wrapped;             // local and position >= window: the store replaces an older row
};

// What storing the next row does. Where `overwrites`, the engine first copies row `write_row`
// (position `overwritten`) to journal row `journal_row`, unless the plane keeps no journal.
struct KvAppend {
    uint64_t position;
    uint64_t write_row;
    bool overwrites;
    bool journaled;
    uint64_t overwritten;
    uint64_t journal_row;
};

struct KvMove {
    uint64_t position;     // whose row comes back
    uint64_t journal_row;  // from here
    uint64_t row;          // to this physical row
};

// The state of one layer's planes. Held rows are [origin_logical, origin_logical + length); the
// journal holds the journal_length rows before origin_logical, row p at slot p % rollback_max.
class KvPlane {
  public:
    // window 0: global. capacity >= window; a ring for several rows at once is made longer.
    KvPlane(uint64_t capacity, uint64_t window, uint32_t rollback_max);

    uint64_t capacity() const noexcept { return capacity_; }
    uint64_t window() const noexcept { return window_; }
    uint32_t rollback_max() const noexcept { return rollback_max_; }
    bool is_local() const noexcept { return window_ != 0; }
    uint64_t length() const noexcept { return length_; }
    uint64_t origin_logical() const noexcept { return origin_logical_; }
    uint64_t origin_physical() const noexcept { return origin_physical_; }
    uint64_t journal_length() const noexcept { return journal_length_; }
    uint64_t next_position() const noexcept { return origin_logical_ + length_; }

    // Physical row of a position held, or of the next one.
    uint64_t row_of(uint64_t position) const noexcept;
    // For the next position, or one whose visible rows are all still held (else std::logic_error:
    // a caller's mistake, not a user's).
    KvView view(uint64_t position) const;

    // ContextFullError on a full global plane; then nothing has changed.
    KvAppend plan_append() const;
    KvAppend append();

    // Takes the last n rows back; the moves bring the journal's rows home, oldest first.
    // RollbackError (facts asked, held, journal) when n exceeds the rows ever written, or when a
    // row that is then held again has left the journal; then nothing has changed. A ring that has
    // wrapped far enough takes back rollback_max rows; one that has lost fewer rows than that, or
    // none, can be shortened to any length that the rows still suffice for.
    std::vector<KvMove> plan_rollback(uint64_t n) const;
    void rollback(uint64_t n);
    // The check behind both: the oldest position held afterwards.
    uint64_t oldest_after_rollback(uint64_t n) const;

    // The state after `length` appends from empty, with `journal` rows of undo history.
    void restore(uint64_t length, uint64_t journal = 0);

  private:
    uint64_t capacity_;
    uint64_t window_;
    uint32_t rollback_max_;
    uint64_t length_ = 0;
    uint64_t origin_logical_ = 0;
    uint64_t origin_physical_ = 0;
    uint64_t journal_length_ = 0;
};

// All layers of one sequence; they move together or not at all.
class KvPlanes {
  public:
    // ConfigError when context is 0 or exceeds the geometry's.
    KvPlanes(const Geometry& geometry, uint64_t context, KvType type,
             uint32_t rollback_max = default_rollback_max);

    uint64_t position() const noexcept { return position_; }  // of the next token
    uint64_t context() const noexcept { return context_; }
    KvType type() const noexcept { return type_; }
    size_t layers() const noexcept { return planes_.size(); }
    const KvPlane& plane(size_t layer) const { return planes_.at(layer); }

    uint64_t row_bytes() const noexcept { return row_bytes_; }  // of one of K, V
    uint64_t plane_bytes(size_t layer) const { return plane(layer).capacity() * row_bytes_; }
    uint64_t journal_bytes(size_t layer) const;  // of one of K, V; 0 for a global layer

    // Advances every layer by one row. ContextFullError (facts position, context) changes nothing.
    std::vector<KvAppend> plan_append() const;
    void append();

    struct Move {
        size_t layer;
        KvMove move;
    };
    // plan_rollback checks all layers and says which journal rows to bring home (in K and in V);
    // rollback does the bookkeeping, after the engine has moved them. Both throw RollbackError
    // before anything has changed.
    std::vector<Move> plan_rollback(uint64_t n) const;
    void rollback(uint64_t n);
    // rollback(position - length). RollbackError if length > position.
    void truncate(uint64_t length) { rollback(rows_beyond(length)); }
    std::vector<Move> plan_truncate(uint64_t length) const {
        return plan_rollback(rows_beyond(length));
    }
    // For a snapshot: every plane as after `length` tokens. ContextFullError changes nothing.
    // `journal` is the number of undo rows that the snapshot carries per ring; cut to what a run
    // of that length could have.
    void restore(uint64_t length, uint64_t journal = 0);
    void reset() { restore(0); }

  private:
    uint64_t rows_beyond(uint64_t length) const;
    void check_room(uint64_t length) const;

    uint64_t context_;
    KvType type_;
    uint64_t row_bytes_;
    uint64_t position_ = 0;
    std::vector<KvPlane> planes_;
};

// Bytes by purpose; nothing has been allocated. `activations` is the caller's to fill.
struct MemoryEstimate {
    uint64_t weights_mapped = 0;
    uint64_t kv_local = 0;   // rings, K and V
    uint64_t kv_global = 0;  // planes, K and V
    uint64_t journal = 0;    // undo rows of the rings, K and V
    uint64_t shadow = 0;     // one staged window, K and V, shared by all local layers
    uint64_t activations = 0;
    uint64_t kv() const noexcept { return kv_local + kv_global + journal + shadow; }
    uint64_t total() const noexcept { return weights_mapped + kv() + activations; }
};

// ConfigError as for KvPlanes. weight_bytes: Census::weight_bytes.
MemoryEstimate memory_estimate(const Geometry& geometry, uint64_t context, KvType type,
                               uint64_t weight_bytes, uint32_t rollback_max = default_rollback_max);

}  // namespace muser::model
