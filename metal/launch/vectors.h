// What launchers take: vectors with their block form, weights, step slots, KV planes.
#pragma once

#include "metal/graph_encoder.h"
#include "metal/kernels/args.h"

namespace muser::launch {

// An f32[n] activation, and its 16-bit block form where a quantised product will read it. With
// several rows (a prompt chunk) row r follows row r - 1 in both buffers.
struct Vector {
    const Buffer* values = nullptr;
    const Buffer* block_form = nullptr;  // null: no quantised product reads this vector
    uint32_t n = 0;
    uint32_t row = 0;

    Vector at(uint32_t r) const { return {values, block_form, n, row + r}; }
    uint32_t blocks() const { return block_form == nullptr ? 0 : n / MUSER_BLOCK; }
    uint64_t offset() const { return uint64_t{row} * n * 4; }
    uint64_t bytes() const { return uint64_t{n} * 4; }

    Argument value(uint32_t index, Access access, uint32_t rows = 1) const {
        return {index, values, offset(), access, bytes() * rows, {}};
    }
    // Where there is no block form the argument is bound all the same, and never touched.
    Argument block(uint32_t index, Access access, uint32_t rows = 1) const {
        if (block_form == nullptr) return {index, values, offset(), access, 0, {}};
        const uint64_t stride = MUSER_BLOCK_FORM_STRIDE(uint64_t{n});
        const uint64_t length = stride * (rows - 1) + MUSER_BLOCK_FORM_BYTES(uint64_t{n});
        Argument argument{index, block_form, row * stride, access, length, {}};
        if (rows > 1) argument.forms_of = n;
        return argument;
    }
};

// One slot of the step buffer.
struct Step {
    const Buffer* buffer = nullptr;
    uint64_t offset = 0;
    bool chained = false;  // as in StepValues
    Argument argument(const kernels::StepReadFacts& facts = {}) const {
        return {1, buffer, offset, Access::read, MUSER_STEP_BYTES, {}, facts};
    }
};

inline Argument weight_argument(uint32_t index, const DeviceWeight& weight) {
    return {index, &weight.buffer, weight.offset, Access::read, weight.bytes, {}};
}

// One of the three views of the step values, by the words that row rules name.
struct View {
    uint32_t id;  // MUSER_VIEW_*
    uint32_t word(size_t field) const {
        constexpr size_t kBase[] = {offsetof(StepValues, ring), offsetof(StepValues, plane),
                                    offsetof(StepValues, shadow)};
        return static_cast<uint32_t>((kBase[id] + field) / 4);
    }
    uint32_t first_row() const { return word(offsetof(KvView, first_row)); }
    uint32_t count() const { return word(offsetof(KvView, count)); }
    uint32_t older() const { return word(offsetof(KvView, older)); }
    uint32_t write_row() const { return word(offsetof(KvView, write_row)); }
    uint32_t chunks() const { return word(offsetof(KvView, chunks)); }
};

// K and V of one layer (or the shadow): rows [capacity][width] of f16 or f32.
struct Planes {
    const Buffer* k = nullptr;
    const Buffer* v = nullptr;
    uint32_t capacity = 0;
    uint32_t width = 0;  // kv_heads * head_dim
    uint32_t element = 2;
    View view{MUSER_VIEW_PLANE};
    // Undo journal of a ring: rows about to be overwritten. Null: none is kept.
    const Buffer* journal_k = nullptr;
    const Buffer* journal_v = nullptr;
    uint32_t journal_rows = 0;

    uint64_t row_bytes() const { return uint64_t{width} * element; }
    uint64_t bytes() const { return row_bytes() * capacity; }
    std::string_view type() const { return element == 2 ? "f16" : "f32"; }

    // Rows named by two words of the step slot bound at index 1.
    Argument rows(uint32_t index, const Buffer* plane, Access access, uint32_t first_word,
                  uint32_t count_word) const {
        return {index,  plane,   0,
                access, bytes(), {true, 1, first_word, count_word, capacity, row_bytes()}};
    }
    Argument visible(uint32_t index, const Buffer* plane) const {
        return rows(index, plane, Access::read, view.first_row(), view.count());
    }
    Argument written(uint32_t index, const Buffer* plane) const {
        return rows(index, plane, Access::write, view.write_row(), RowRule::kConstant);
    }
    // The row about to be overwritten, read for the journal when step.overwrite is 1.
    Argument replaced(uint32_t index, const Buffer* plane) const {
        Argument argument =
            rows(index, plane, Access::read, view.write_row(), offsetof(StepValues, overwrite) / 4);
        if (journal_k == nullptr) argument.length = 0;
        return argument;
    }
    Argument journaled(uint32_t index, const Buffer* journal, const Buffer* unused) const {
        if (journal == nullptr) return {index, unused, 0, Access::write, 0, {}};
        return {index,
                journal,
                0,
                Access::write,
                row_bytes() * journal_rows,
                {true, 1, offsetof(StepValues, journal_row) / 4,
                 offsetof(StepValues, overwrite) / 4, journal_rows, row_bytes()}};
    }
};

}  // namespace muser::launch
