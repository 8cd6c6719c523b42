// Prompt chunks: many tokens in one command buffer, with decode's bits. Products take the chunk's
// rows as columns, so each weight is read once per chunk; everything else runs row by row.
#import "metal/engine_impl.h"

#include <algorithm>
#include <array>

#import "metal/launch/pointwise.h"

namespace muser {

// Buffers of a chunk: the step's own set, times rows. Made on first use.
struct Engine::Impl::ChunkBuffers {
    uint32_t rows = 0;
    uint32_t head_rows = 0;
    Activations act;
    const Buffer* steps = nullptr;
};

uint32_t Engine::Impl::chunk_rows() const {
    // Two rows of a chunk must not share a row of the ring.
    const uint32_t most = first_local ? on_device.geometry.window : config.prefill_rows;
    return std::min(config.prefill_rows, most);
}

const Engine::Impl::ChunkBuffers& Engine::Impl::chunk_buffers(uint32_t head_rows) {
    if (chunk && chunk->head_rows >= head_rows) return *chunk;
    const uint32_t rows = chunk_rows();
    auto made = std::make_shared<ChunkBuffers>();
    if (chunk) *made = *chunk;
    const auto widen = [&](launch::Vector& vector, const launch::Vector& one, const char* label) {
        vector = one;
        vector.values = make(label, one.bytes() * rows);
        if (one.block_form != nullptr) {
            vector.block_form = make(std::string(label) + ".blocks",
                                     MUSER_BLOCK_FORM_STRIDE(uint64_t{one.n}) * rows);
        }
    };
    if (!chunk) {
        made->rows = rows;
        made->act = act;
        widen(made->act.hidden, act.hidden, "chunk.hidden");
        widen(made->act.residual, act.residual, "chunk.residual");
        widen(made->act.normed, act.normed, "chunk.normed");
        widen(made->act.q, act.q, "chunk.q");
        widen(made->act.k, act.k, "chunk.k");
        widen(made->act.v, act.v, "chunk.v");
        widen(made->act.gate, act.gate, "chunk.gate");
        widen(made->act.attention, act.attention, "chunk.attention");
        widen(made->act.projected, act.projected, "chunk.projected");
        widen(made->act.ffn_gate, act.ffn_gate, "chunk.ffn_gate");
        widen(made->act.ffn_up, act.ffn_up, "chunk.ffn_up");
        widen(made->act.ffn_act, act.ffn_act, "chunk.ffn_act");
        made->act.partials.buffer = make("chunk.partials", act.partials.row_bytes * rows);
        made->steps =
            make("chunk.steps", uint64_t{rows} * MUSER_STEP_BYTES, Placement::host_visible);
        if (first_local) {
            launch::Planes& shadow = made->act.shadow;
            shadow = on_device.layers[*first_local].planes;
            shadow.journal_k = shadow.journal_v = nullptr;
            shadow.capacity = on_device.geometry.window + rows - 1;
            shadow.view = {MUSER_VIEW_SHADOW};
            shadow.k = make("chunk.shadow.K", shadow.bytes());
            shadow.v = make("chunk.shadow.V", shadow.bytes());
        }
    }
    made->head_rows = head_rows;
    made->act.logits.values =
        make("chunk.logits", act.logits.bytes() * head_rows, Placement::host_visible);
    made->act.flags =
        make("chunk.flags", launch::head_groups(act.logits.n) * uint64_t{4} * head_rows,
             Placement::host_visible);
    chunk = std::move(made);
    return *chunk;
}

// Step values of the next `rows` tokens, as if they came one by one.
std::vector<StepValues> Engine::Impl::chunk_values(const uint32_t* tokens, uint32_t rows) {
    std::vector<StepValues> values;
    model::KvPlanes planes = kv;
    for (uint32_t r = 0; r < rows; ++r) {
        values.push_back(step_values(tokens[r], planes));
        StepValues& v = values.back();
        // The chunk's shadow holds every row that its tokens see, oldest first.
        const uint32_t oldest = values.front().ring.first_position;
        v.shadow.first_row = v.ring.first_position - oldest;
        v.shadow.write_row = v.position - oldest;
        // Of the rows that this chunk overwrites the journal keeps the last ones; two rows of one
        // dispatch group must not share a slot.
        if (r + config.rollback_max < rows) v.overwrite = 0;
        planes.append();
    }
    return values;
}

// The chunk whose step values these are, encoded and not committed.
ObjcPtr<CommandBufferId> Engine::Impl::encode_rows(const std::vector<StepValues>& values,
                                                   uint32_t head_rows, EncodeLog* log) {
    const ChunkBuffers& buffers_of = chunk_buffers(head_rows);
    Phase phase = phase_at(values.back().position);
    phase.ring_chunks = (on_device.geometry.window + MUSER_CHUNK - 1) / MUSER_CHUNK + 1;
    GraphEncoder g(context, encoder_options(log, phase));
    ObjcPtr<CommandBufferId> commands = next_commands();
    g.begin(commands.get());
    encode_chunk(g, on_device, buffers_of.act, chunk_schedule(schedule), {buffers_of.steps, 0},
                 phase, static_cast<uint32_t>(values.size()), head_rows);
    g.end();
    return commands;
}

const Activations& Engine::Impl::chunk_activations() const { return chunk->act; }
const Buffer& Engine::Impl::chunk_steps() const { return *chunk->steps; }

void Engine::Impl::run_chunk(const uint32_t* tokens, uint32_t rows, uint32_t head_rows,
                             float* logits, const Interrupted& interrupted) {
    const ChunkBuffers& buffers_of = chunk_buffers(head_rows);
    const std::vector<StepValues> values = chunk_values(tokens, rows);
    context.write(*buffers_of.steps, 0, values.data(), values.size() * sizeof(StepValues));
    const ObjcPtr<CommandBufferId> commands = encode_rows(values, head_rows, nullptr);
    [commands.get() commit];
    guarded([&] { waiter.wait(commands.get(), config.wait_seconds, interrupted); });
    for (uint32_t r = 0; r < rows; ++r) kv.append();
    try {
        for (uint32_t r = 0; r < head_rows; ++r) {
            read_row(buffers_of.act, r, logits + uint64_t{r} * act.logits.n);
        }
    } catch (const NonFiniteError&) {
        if (config.rollback_max >= rows) bring_back(rows);
        throw;
    }
}

void Engine::prefill(const uint32_t* tokens, size_t count, bool all_rows, float* logits,
                     const Interrupted& interrupted) {
    Impl& self = *impl_;
    AutoreleaseScope scope;
    self.check_alive();
    for (size_t i = 0; i < count; ++i) self.check_token(tokens[i]);
    if (self.kv.position() + count > self.config.context) {
        throw ContextFullError("the prompt does not fit: " + std::to_string(count) +
                                   " tokens at position " + std::to_string(self.kv.position()) +
                                   " of " + std::to_string(self.config.context),
                               {{"position", std::to_string(self.kv.position())},
                                {"tokens", std::to_string(count)},
                                {"context", std::to_string(self.config.context)}});
    }
    const uint64_t vocab = self.on_device.geometry.vocab;
    std::vector<Capture> none;
    // A barrier plan covers the graph of one token, so under `planned` tokens go one by one.
    const uint32_t most = self.config.barriers == "planned" ? 1 : self.chunk_rows();
    for (size_t done = 0; done < count;) {
        const auto rows = static_cast<uint32_t>(std::min<size_t>(most, count - done));
        float* to = logits + (all_rows ? done * vocab : 0);
        if (rows == 1) {
            decode(tokens[done], to, {}, none, interrupted);
        } else {
            AutoreleaseScope chunk_scope;
            self.run_chunk(tokens + done, rows, all_rows ? rows : 1, to, interrupted);
        }
        done += rows;
        if (interrupted && interrupted()) return;  // whole chunks are part of the state
    }
}

}  // namespace muser
