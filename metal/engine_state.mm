// State: reset, rollback, KV rows in and out.
#import "metal/engine_impl.h"

#include <cstring>

namespace muser {

void Engine::Impl::bring_back(uint64_t tokens) {
    const auto moves = kv.plan_rollback(tokens);
    std::vector<std::byte> row(kv.row_bytes());
    for (const model::KvPlanes::Move& move : moves) {
        const launch::Planes& planes = on_device.layers[move.layer].planes;
        const uint64_t from = move.move.journal_row * row.size();
        const uint64_t to = move.move.row * row.size();
        context.read(*planes.journal_k, from, row.data(), row.size());
        context.write(*planes.k, to, row.data(), row.size());
        context.read(*planes.journal_v, from, row.data(), row.size());
        context.write(*planes.v, to, row.data(), row.size());
    }
    kv.rollback(tokens);
}

void Engine::reset() {
    impl_->check_alive();
    impl_->kv.reset();
}

void Engine::rollback(uint64_t tokens) {
    impl_->check_alive();
    impl_->bring_back(tokens);
}

namespace {

// The pieces of a layer's state: buffer, and the physical row of each row in position order.
struct Section {
    const char* name;
    const Buffer* buffer;
    std::vector<std::byte> LayerState::*bytes;
    std::vector<uint64_t> rows;
};

std::vector<Section> sections(const launch::Planes& planes, const model::KvPlane& held) {
    std::vector<uint64_t> rows, journal;
    for (uint64_t p = held.origin_logical(); p < held.next_position(); ++p) {
        rows.push_back(held.row_of(p));
    }
    for (uint64_t p = held.origin_logical() - held.journal_length(); p < held.origin_logical();
         ++p) {
        journal.push_back(p % held.rollback_max());
    }
    return {{"k", planes.k, &LayerState::k, rows},
            {"v", planes.v, &LayerState::v, rows},
            {"journal k", planes.journal_k, &LayerState::journal_k, journal},
            {"journal v", planes.journal_v, &LayerState::journal_v, journal}};
}

}  // namespace

SequenceState Engine::state() const {
    const Impl& self = *impl_;
    self.check_alive();
    SequenceState state;
    state.position = self.kv.position();
    state.element = static_cast<uint32_t>(model::kv_element_bytes(self.kv.type()));
    if (self.first_local) state.journal = self.kv.plane(*self.first_local).journal_length();
    const uint64_t row = self.kv.row_bytes();
    for (size_t i = 0; i < self.on_device.layers.size(); ++i) {
        LayerState layer;
        for (const Section& section : sections(self.on_device.layers[i].planes, self.kv.plane(i))) {
            std::vector<std::byte>& bytes = layer.*section.bytes;
            bytes.resize(section.rows.size() * row);
            for (size_t r = 0; r < section.rows.size(); ++r) {
                self.context.read(*section.buffer, section.rows[r] * row, bytes.data() + r * row,
                                  row);
            }
        }
        state.layers.push_back(std::move(layer));
    }
    return state;
}

void Engine::set_state(const SequenceState& state) {
    Impl& self = *impl_;
    self.check_alive();
    const auto refuse = [](const std::string& what, uint64_t found, uint64_t expected) {
        throw SnapshotError("the snapshot's " + what + " is " + std::to_string(found) + ", not " +
                                std::to_string(expected),
                            {{"section", what},
                             {"found", std::to_string(found)},
                             {"expected", std::to_string(expected)}});
    };
    const uint64_t element = model::kv_element_bytes(self.kv.type());
    if (state.element != element) refuse("KV element size", state.element, element);
    if (state.layers.size() != self.on_device.layers.size()) {
        refuse("number of layers", state.layers.size(), self.on_device.layers.size());
    }
    // Everything is checked against the bookkeeping that the state would have, before any row of
    // the old one is touched.
    model::KvPlanes next(self.on_device.geometry, self.config.context, self.kv.type(),
                         self.config.rollback_max);
    next.restore(state.position, state.journal);
    if (self.first_local && next.plane(*self.first_local).journal_length() != state.journal) {
        refuse("undo rows", state.journal, next.plane(*self.first_local).journal_length());
    }
    const uint64_t row = next.row_bytes();
    for (size_t i = 0; i < state.layers.size(); ++i) {
        for (const Section& section : sections(self.on_device.layers[i].planes, next.plane(i))) {
            const uint64_t found = (state.layers[i].*section.bytes).size();
            if (found != section.rows.size() * row) {
                refuse("layer " + std::to_string(i) + " " + section.name + " size in bytes", found,
                       section.rows.size() * row);
            }
        }
    }
    for (size_t i = 0; i < state.layers.size(); ++i) {
        for (const Section& section : sections(self.on_device.layers[i].planes, next.plane(i))) {
            const std::vector<std::byte>& bytes = state.layers[i].*section.bytes;
            for (size_t r = 0; r < section.rows.size(); ++r) {
                self.context.write(*section.buffer, section.rows[r] * row, bytes.data() + r * row,
                                   row);
            }
        }
    }
    self.kv = next;
}

namespace {

const Buffer& plane_buffer(const LayerOnDevice& layer, char plane) {
    if (plane == 'k') return *layer.planes.k;
    if (plane == 'v') return *layer.planes.v;
    throw ConfigError("plane is k or v", {{"plane", std::string(1, plane)}});
}

}  // namespace

KvRows Engine::kv(uint32_t layer, char plane, uint64_t first, uint64_t count) const {
    const Impl& self = *impl_;
    self.check_alive();
    if (layer >= self.on_device.layers.size()) {
        throw ConfigError("no layer " + std::to_string(layer),
                          {{"layer", std::to_string(layer)},
                           {"layers", std::to_string(self.on_device.layers.size())}});
    }
    const model::KvPlane& held = self.kv.plane(layer);
    if (first < held.origin_logical() || first + count > held.next_position()) {
        throw ConfigError("layer " + std::to_string(layer) + " holds positions " +
                              std::to_string(held.origin_logical()) + " ... " +
                              std::to_string(held.next_position()) + " (exclusive), not " +
                              std::to_string(first) + " ... " + std::to_string(first + count),
                          {{"layer", std::to_string(layer)},
                           {"first", std::to_string(first)},
                           {"count", std::to_string(count)}});
    }
    const Buffer& buffer = plane_buffer(self.on_device.layers[layer], plane);
    const uint64_t row = self.kv.row_bytes();
    KvRows rows;
    rows.element = static_cast<uint32_t>(model::kv_element_bytes(self.kv.type()));
    rows.rows = count;
    rows.kv_heads = self.on_device.geometry.kv_heads;
    rows.head_dim = self.on_device.geometry.head_dim;
    rows.bytes.resize(count * row);
    for (uint64_t i = 0; i < count; ++i) {
        self.context.read(buffer, held.row_of(first + i) * row, rows.bytes.data() + i * row, row);
    }
    return rows;
}

void Engine::set_kv(uint32_t layer, char plane, uint64_t position, const std::byte* bytes,
                    size_t size) {
    Impl& self = *impl_;
    const KvRows held = kv(layer, plane, position, 1);
    if (size != held.bytes.size()) {
        throw ConfigError(
            "a row is " + std::to_string(held.bytes.size()) + " bytes, not " + std::to_string(size),
            {{"found", std::to_string(size)}, {"expected", std::to_string(held.bytes.size())}});
    }
    self.context.write(plane_buffer(self.on_device.layers[layer], plane),
                       self.kv.plane(layer).row_of(position) * size, bytes, size);
}

}  // namespace muser
