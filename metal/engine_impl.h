// The engine's parts, shared by the files that implement it.
#pragma once

#import "metal/barrier_planner.h"
#import "metal/context.h"
#import "metal/spare_weights.h"
#import "metal/token_graph.h"
#import "metal/wait.h"

#include <deque>
#include <optional>
#include <span>

#include "errors.h"
#include "metal/engine.h"
#include "model/kv_planes.h"

namespace muser {

struct Engine::Impl {
    Impl(const std::string& path, const EngineConfig& config);

    // ---- load (engine.mm) ----
    void choose_schedule();
    void load_weights();
    void make_kv();
    void make_activations();
    void make_pipelines();
    const Buffer* make(std::string label, uint64_t bytes, Placement placement = Placement::device);
    launch::Vector make_vector(const char* label, uint32_t n, bool block_form);

    // ---- one step (engine_step.mm) ----
    Phase phase_at(uint64_t position) const;
    launch::Step step_slot(uint32_t slot) const;
    // Of the next position of `planes`.
    StepValues step_values(uint32_t token, const model::KvPlanes& planes) const;
    void check_token(uint32_t token) const;
    void check_captures(const std::vector<std::string>& capture);
    void check_alive() const;
    void encode_only(uint64_t position, EncodeLog& log);
    GraphEncoder::Options encoder_options(EncodeLog* log, const Phase& phase);
    const BarrierPlan& plan_for(const Phase& phase);  // made on first use
    ObjcPtr<CommandBufferId> next_commands();
    // One token, from its step values to its logits; what decode and profile share.
    struct StepRun {
        uint32_t token = 0;
        float* logits = nullptr;
        Interrupted interrupted;
        EncodeLog* log = nullptr;
        std::vector<std::pair<Stage, int>> repeat;
        std::function<bool(Label)> stops_after;    // cut the command buffer after this closure
        std::function<void(Label)> after_closure;  // with everything up to it finished
        bool time_labels = false;
        // Called with each command buffer once it has completed.
        std::function<void(id<MTLCommandBuffer>)> completed;
        double encode_seconds = 0, submit_seconds = 0, wait_seconds = 0, readback_seconds = 0;
    };
    void run_step(StepRun& run);
    ObjcPtr<CommandBufferId> encode_step(const Phase& phase, uint32_t slot = 0,
                                         EncodeLog* log = nullptr);
    void read_row(const Activations& set, uint32_t row, float* logits);
    // NonFiniteError where a flag of the row before `position` is set.
    static void check_finite(std::span<const uint32_t> flags, uint64_t position);
    // Runs `work`; a device failure or deadline in it leaves the engine dead, saying why.
    template <class Work>
    void guarded(Work&& work);

    // ---- lanes (engine_lane.mm) ----
    // Logits and flags of a lane slot; slot 0 is the single step's.
    Activations activations_for(uint32_t slot);
    void check_lane(size_t count) const;
    // What the host writes before a lane: the slots of `count` steps. A greedy lane has one known
    // token, and a slot behind the last that takes its choice.
    std::vector<StepValues> lane_values(const uint32_t* tokens, uint32_t count, bool greedy) const;
    Phase lane_phase(const StepValues& values, bool greedy) const;
    void run_lane(const std::vector<StepValues>& values, uint32_t count, bool greedy,
                  const Interrupted& interrupted);
    void read_lane(uint32_t count, uint32_t kept, float* logits);
    void read_choices(uint32_t count, uint32_t* ids) const;

    // ---- prompt chunks (engine_prefill.mm) ----
    struct ChunkBuffers;
    uint32_t chunk_rows() const;
    const ChunkBuffers& chunk_buffers(uint32_t head_rows);
    std::vector<StepValues> chunk_values(const uint32_t* tokens, uint32_t rows);
    ObjcPtr<CommandBufferId> encode_rows(const std::vector<StepValues>& values, uint32_t head_rows,
                                         EncodeLog* log);
    const Activations& chunk_activations() const;  // once a chunk has been encoded
    const Buffer& chunk_steps() const;
    void run_chunk(const uint32_t* tokens, uint32_t rows, uint32_t head_rows, float* logits,
                   const Interrupted& interrupted);

    // ---- state (engine_state.mm) ----
    void bring_back(uint64_t tokens);  // rollback with its row moves

    EngineConfig config;
    model::Model model;
    // Test switches: changed copies of weights.
    std::shared_ptr<std::deque<std::vector<std::byte>>> fault_rows =
        std::make_shared<std::deque<std::vector<std::byte>>>();
    Schedule schedule;
    Context context;
    Waiter waiter{{model.mapping(), fault_rows}};
    ModelOnDevice on_device;
    model::KvPlanes kv;
    std::deque<Buffer> buffers;  // all of the engine's own; stable addresses
    Activations act;
    const Buffer* steps = nullptr;        // step values: kLaneMax slots and a greedy lane's last
    const Buffer* lane_logits = nullptr;  // rows 1 ... of a lane; made on first use
    const Buffer* lane_flags = nullptr;
    std::optional<size_t> first_local, first_global;  // layers that stand for their kind
    std::deque<std::pair<Phase, BarrierPlan>> plans;  // `planned`: frozen, one per phase
    std::shared_ptr<const ChunkBuffers> chunk;
    SpareWeights spares;  // of profiled repetitions
    // The next plain step, encoded while the one before it ran.
    struct Ahead {
        Phase phase;
        ObjcPtr<CommandBufferId> commands;
    };
    std::optional<Ahead> ahead;
    bool split_closures = false;  // test switch: a command buffer for each closure, all in flight
    std::string dead;
};

// The number of 64-key chunks is bounded by a power of two, so that recordings repeat.
uint32_t chunk_bucket(uint64_t keys, uint64_t most_keys);

template <class Work>
void Engine::Impl::guarded(Work&& work) {
    try {
        work();
    } catch (const DeviceError& error) {
        dead = error.what();
        throw;
    } catch (const DeviceMemoryError& error) {
        dead = error.what();
        throw;
    } catch (const DeadlineError& error) {
        dead = error.what();
        throw;
    } catch (const muser::Interrupted&) {
        dead = "interrupted during a step at position " + std::to_string(kv.position());
        throw EngineClosed("interrupted during a step at position " +
                               std::to_string(kv.position()) +
                               "; the device did not finish it, so the engine is closed",
                           {{"position", std::to_string(kv.position())}});
    }
}

}  // namespace muser
