// The engine: one file, one device, one sequence. Plain C++ to its callers (the Python module and
// the microbenchmarks); Objective-C++ behind.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/geometry.h"

namespace muser {

namespace audit {
struct Trace;
}

inline constexpr int kContract = 1;       // version of docs/numerics.md
inline constexpr uint32_t kLaneMax = 64;  // tokens of one lane

// Everything is chosen here, once, at load. Python fills it; nothing below reads the environment.
struct EngineConfig {
    std::string device = "cpu";
    std::string schedule = "production";
    uint64_t context = 4096;        // positions
    std::string kv_dtype = "f16";   // f16 | f32
    int threads = 0;                // 0: the affinity and cgroup share
    std::string isa;                // "": the best there is
    std::string barriers = "hand";  // hand | planned | all
    double wait_seconds = 300;
    bool allow_inexact = false;
    bool serial_dispatch = false;
    bool ffn_gate_up = false;  // fused gate, up and SiLU in any schedule
    bool untracked = false;
    uint32_t rollback_max = 64;
    uint32_t prefill_rows = 128;  // tokens of one prompt chunk, at most the window
    int gpu = 0;
    uint64_t seed = 0;
    std::string kernel_dir;
    std::string cache_dir;
    std::vector<double> rope_inverse;   // head_dim / 2 values
    std::map<std::string, int> faults;  // test switches
};

struct Capture {
    std::string name;
    std::vector<float> values;
};

struct PlanDispatch {
    std::string closure, kernel;
    uint32_t groups[3], threads;
};
struct PlanBarrier {
    uint32_t before_dispatch;
    std::string site, hazard;
    std::vector<std::string> resources;
};
struct Plan {
    std::string schedule;
    uint64_t position = 0;
    std::vector<std::string> closures;
    std::vector<PlanDispatch> dispatches;
    uint32_t broad = 0, targeted = 0;
    std::vector<PlanBarrier> barriers;
    std::string canonical;  // one line per fact; its SHA-256 is the plan hash
};

struct DeviceDescription {
    std::string name, description, isa;
    int threads = 0;
    std::map<std::string, uint64_t> weight_bytes;  // layout -> bytes
};

// One closure's own time on the device's clock; not known where the device cannot tell.
struct ClosureTime {
    std::string closure;
    bool known = false;
    double start_seconds = 0, end_seconds = 0;
};
struct Profile {
    std::string schedule;
    uint64_t position = 0;
    std::vector<std::string> labels;   // closures as the graph encoded them, in order
    std::vector<ClosureTime> samples;  // closures as the device ran them, in order
    uint64_t dispatches = 0;
    uint32_t broad = 0, targeted = 0;  // barriers
    uint32_t command_buffers = 0;
    double device_seconds = 0;  // start to end, summed over command buffers
    double encode_seconds = 0, submit_seconds = 0, wait_seconds = 0, readback_seconds = 0;
    double wall_seconds = 0;
    uint64_t spare_bytes = 0;  // of weights that only repetitions read; kept until the engine goes
};

// What one traced step touched. Findings are sentences with key=value lines.
struct TracedArgument {
    std::string name;
    uint64_t read_bytes, written_bytes;
};
struct TracedDispatch {
    std::string closure, kernel;
    std::vector<TracedArgument> arguments;
};
struct TraceFinding {
    std::string kind, kernel, closure;
    int argument;
    std::string text;
};
struct StepTrace {
    uint64_t loads = 0, stores = 0, suppressed = 0;
    std::vector<TracedDispatch> dispatches;
    std::vector<TraceFinding> findings;
};

struct KvRows {
    uint32_t element = 2;  // bytes: f16 or f32
    uint64_t rows = 0, kv_heads = 0, head_dim = 0;
    std::vector<std::byte> bytes;
};

// The whole of a sequence, in position order and thus the same from every device. Journal rows are
// the ones before the oldest row that a ring holds, oldest first.
struct LayerState {
    std::vector<std::byte> k, v, journal_k, journal_v;
};
struct SequenceState {
    uint64_t position = 0;
    uint64_t journal = 0;  // undo rows of each ring
    uint32_t element = 2;  // bytes: f16 or f32
    std::vector<LayerState> layers;
};

struct Memory {
    uint64_t weights_mapped = 0, weights_repacked = 0, kv = 0, shadow = 0, journal = 0,
             activations = 0;
    uint64_t total() const { return weights_repacked + kv + shadow + journal + activations; }
};

// What an engine would need, before anything is allocated. GGUFError, ConfigError.
Memory estimate_memory(const std::string& path, const EngineConfig& config);

class Engine {
  public:
    // GGUFError, ConfigError, DeviceError, DeviceMemoryError, ProbeError.
    Engine(const std::string& path, const EngineConfig& config);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    using Interrupted = std::function<bool()>;

    // Feeds one token; writes its vocab logits. On any error but those of the device the state is
    // as before; after a device error or a deadline the engine is dead (EngineClosed from then on).
    void decode(uint32_t token, float* logits, const std::vector<std::string>& capture,
                std::vector<Capture>& captured, const Interrupted& interrupted);
    // Feeds a prompt in chunks of config.prefill_rows, with decode's bits; writes the last row of
    // logits, or every one.
    void prefill(const uint32_t* tokens, size_t count, bool all_rows, float* logits,
                 const Interrupted& interrupted);
    // `count` known tokens, one command buffer each, no waits between; rows of vocab logits.
    void teacher_forced(const uint32_t* tokens, size_t count, float* logits,
                        const Interrupted& interrupted);
    // Feeds `token`, then the largest logit's id (lowest on a tie) of each step, `count` steps in
    // all. The choice is made and read on the device: lanes of at most kLaneMax command buffers
    // with no waits between. Writes the id chosen after each step, and rows of logits unless null.
    // A choice in `stop` ends it: the steps after are taken back, which bounds a lane by
    // config.rollback_max. Returns how many steps are kept; a signal ends it after a lane. Lanes
    // that have ended before an error stay part of the state.
    size_t greedy(uint32_t token, size_t count, std::span<const uint32_t> stop, uint32_t* ids,
                  float* logits, const Interrupted& interrupted);

    // decode, measured. `phase` submits each closure as its own command buffer and waits: it
    // measures a graph that production never runs. `repeat` runs a stage's kernels k times (only
    // stages that do not change their own input: ConfigError), for its own time by the slope; all
    // but the last run read copies of weights, made here (DeviceMemoryError), as cold as the own.
    Profile profile(uint32_t token, float* logits, bool phase,
                    const std::map<std::string, int>& repeat, const Interrupted& interrupted);

    // decode (one token) or prefill (several: prompt chunks) on the emulator, with every load and
    // store judged; or a greedy lane of as many steps, from the first token on. ConfigError on
    // another device.
    StepTrace trace(std::span<const uint32_t> tokens, float* logits, bool greedy = false);

    void reset();
    void rollback(uint64_t tokens);
    SequenceState state() const;
    // SnapshotError (layer, section, found, expected) or ContextFullError; then nothing changed.
    void set_state(const SequenceState& state);

    KvRows kv(uint32_t layer, char plane, uint64_t first, uint64_t count) const;
    void set_kv(uint32_t layer, char plane, uint64_t position, const std::byte* row, size_t bytes);

    Plan plan(uint64_t position) const;
    // The command buffers of a step or a lane (teacher-forced or greedy), or of a prompt chunk, at
    // any position, with what the host does around them; nothing is run and no state changes. For
    // the auditor.
    enum class Recorded { lane, greedy, chunk };
    audit::Trace record(uint64_t position, uint32_t tokens, Recorded kind = Recorded::lane) const;

    uint64_t position() const;
    const model::Geometry& geometry() const;
    DeviceDescription device() const;
    // Why no further work is accepted; empty while the engine lives.
    const std::string& dead() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace muser
