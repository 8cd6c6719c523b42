// Loading: schedule, weights, KV planes, activations.
#import "metal/engine_impl.h"

#include <algorithm>
#include <cmath>

#import "metal/launch/pointwise.h"
#import "metal/launch/product.h"

namespace muser {
namespace {

// Test switch: every closure in a command buffer of its own, all of them in flight together.
bool splits_closures(const EngineConfig& config) {
    const auto found = config.faults.find("split_closures");
    return found != config.faults.end() && found->second != 0;
}

ContextOptions context_options(const EngineConfig& config) {
    ContextOptions options;
    options.device = config.device;
    options.options.threads = config.threads;
    options.options.isa = config.isa;
    options.options.seed = config.seed;
    options.options.cache_dir = config.cache_dir;
    options.options.gpu = config.gpu;
    options.kernel_dir = config.kernel_dir;
    options.faults = config.faults;
    const auto forced = config.faults.find("untracked");  // without the planner's proof: for tests
    options.untracked = config.untracked || (forced != config.faults.end() && forced->second != 0);
    if (splits_closures(config)) options.command_buffers = 4096;
    return options;
}

model::KvType kv_type(const EngineConfig& config) {
    if (config.kv_dtype == "f16") return model::KvType::F16;
    if (config.kv_dtype == "f32") return model::KvType::F32;
    throw ConfigError("kv_dtype is f16 or f32, not '" + config.kv_dtype + "'",
                      {{"kv_dtype", config.kv_dtype}, {"allowed", "f16, f32"}});
}

// f32(1 / sqrt(head_dim)), computed in f64 and rounded once.
float attention_scale(uint32_t head_dim) {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

constexpr uint64_t kStepsBytes = (kLaneMax + 1) * uint64_t{MUSER_STEP_BYTES};

// The model as it is, or with mistakes seeded for a test.
ModelOnDevice seeded(const model::Geometry& geometry, const std::map<std::string, int>& faults) {
    ModelOnDevice on_device;
    on_device.geometry = geometry;
    on_device.faults = apply_model_faults(faults, on_device.geometry);
    return on_device;
}

}  // namespace

uint32_t chunk_bucket(uint64_t keys, uint64_t most_keys) {
    // Keys that do not start at a multiple of 64 touch one chunk more.
    const auto chunks = [](uint64_t n) {
        return static_cast<uint32_t>((n + MUSER_CHUNK - 1) / MUSER_CHUNK);
    };
    uint32_t bucket = 1;
    while (bucket < chunks(keys)) bucket *= 2;
    return std::min(bucket, chunks(most_keys) + 1);
}

Engine::Impl::Impl(const std::string& path, const EngineConfig& settings)
    : config(settings),
      model(model::Model::open(path)),
      schedule(find_schedule(settings.schedule)),
      context(context_options(settings)),
      on_device(seeded(model.geometry(), settings.faults)),
      kv(on_device.geometry, settings.context, kv_type(settings), settings.rollback_max) {
    choose_schedule();
    if (config.rope_inverse.size() != model.geometry().head_dim / 2) {
        throw ConfigError("rope_inverse needs head_dim / 2 values",
                          {{"found", std::to_string(config.rope_inverse.size())},
                           {"expected", std::to_string(model.geometry().head_dim / 2)}});
    }
    if (model.geometry().head_dim > MUSER_MAX_HEAD_DIM) {
        throw GGUFError("head_dim " + std::to_string(model.geometry().head_dim) +
                            " is beyond what the kernels hold",
                        {{"found", std::to_string(model.geometry().head_dim)},
                         {"expected", "at most " + std::to_string(MUSER_MAX_HEAD_DIM)}});
    }
    split_closures = splits_closures(config);
    load_weights();
    make_kv();
    make_activations();
    make_pipelines();
}

// A kernel that the device lacks or cannot run is an error of loading, not of the first token.
void Engine::Impl::make_pipelines() {
    AutoreleaseScope scope;
    EncodeLog log;
    encode_only(0, log);
    if (config.context > on_device.geometry.window) encode_only(on_device.geometry.window, log);
    for (const char* kernel : {"argmax_groups_f32", "argmax_final_f32"}) context.pipeline(kernel);
}

void Engine::Impl::choose_schedule() {
    if (config.ffn_gate_up) schedule.ffn = FfnPath::fused;
    const model::Geometry& geometry = on_device.geometry;
    const uint32_t queries = geometry.heads / geometry.kv_heads;
    const uint32_t most = max_queries_per_kv_head(schedule);
    if (most != 0 && queries > most) {
        throw ConfigError("schedule " + std::string(schedule.name) + " serves at most " +
                              std::to_string(most) + " query heads per KV head; the file has " +
                              std::to_string(queries),
                          {{"schedule", std::string(schedule.name)},
                           {"found", std::to_string(queries)},
                           {"expected", std::to_string(most)}});
    }
    if (geometry.head_dim % 8 != 0) {
        throw GGUFError(
            "head_dim " + std::to_string(geometry.head_dim) +
                " is not a multiple of 8, which the kernels need",
            {{"found", std::to_string(geometry.head_dim)}, {"expected", "a multiple of 8"}});
    }
    if (!schedule.exact && !config.allow_inexact) {
        throw ConfigError("schedule " + std::string(schedule.name) +
                              " changes bits; allow_inexact=True loads it all the same",
                          {{"schedule", std::string(schedule.name)}});
    }
    if (config.barriers != "hand" && config.barriers != "planned" && config.barriers != "all") {
        throw ConfigError("barriers is hand, planned or all, not '" + config.barriers + "'",
                          {{"barriers", config.barriers}, {"allowed", "hand, planned, all"}});
    }
    if (config.untracked && config.barriers != "planned") {
        throw ConfigError(
            "untracked buffers need barriers='planned': by hand, crossings are left to tracking",
            {{"untracked", "1"}, {"barriers", config.barriers}});
    }
}

void Engine::Impl::load_weights() {
    const model::Geometry& geometry = on_device.geometry;
    on_device.heads = {geometry.heads, geometry.kv_heads, geometry.head_dim,
                       attention_scale(geometry.head_dim)};
    const auto load = [&](const model::Weight& weight) {
        return context.make_weight(model, weight);
    };
    const auto changed = [&](model::Weight weight, std::vector<std::byte> rows) {
        fault_rows->push_back(std::move(rows));
        weight.data = fault_rows->back().data();
        return load(weight);
    };
    const auto rotated = [&](const model::Weight& weight) {
        if (!on_device.faults.half_split_pairs) return load(weight);
        return changed(weight, half_split_rows(weight, geometry.head_dim));
    };
    const auto q_norm = [&](const model::Weight& weight) {
        if (!on_device.faults.q_scale_twice) return load(weight);
        return changed(weight, squared(weight));
    };
    const auto first_global_is = [&](size_t i) {
        const auto global = std::find(geometry.is_local.begin(), geometry.is_local.end(), false);
        return global == geometry.is_local.begin() + static_cast<std::ptrdiff_t>(i);
    };
    on_device.token_embd = load(model.token_embd());
    for (size_t i = 0; i < model.layers().size(); ++i) {
        const model::LayerWeights& from = model.layers()[i];
        LayerOnDevice layer;
        layer.local = geometry.is_local[i];
        layer.rope = layer.local || (on_device.faults.rope_on_global && first_global_is(i));
        layer.attn_norm = load(from.attn_norm);
        layer.attn_q = rotated(from.attn_q);
        layer.attn_k = rotated(from.attn_k);
        layer.attn_v = load(from.attn_v);
        layer.attn_gate = load(from.attn_gate);
        layer.attn_q_norm = q_norm(from.attn_q_norm);
        layer.attn_k_norm = load(from.attn_k_norm);
        layer.attn_output = load(from.attn_output);
        layer.post_attention_norm = load(from.post_attention_norm);
        layer.ffn_norm = load(from.ffn_norm);
        layer.ffn_gate = load(from.ffn_gate);
        layer.ffn_up = load(from.ffn_up);
        layer.ffn_down = load(from.ffn_down);
        layer.post_ffw_norm = load(from.post_ffw_norm);
        on_device.layers.push_back(std::move(layer));
    }
    on_device.output_norm = load(model.output_norm());
    on_device.output = load(model.output());
}

const Buffer* Engine::Impl::make(std::string label, uint64_t bytes, Placement placement) {
    buffers.push_back(context.make_buffer(std::move(label), bytes, placement));
    return &buffers.back();
}

void Engine::Impl::make_kv() {
    const model::Geometry& geometry = on_device.geometry;
    for (size_t i = 0; i < on_device.layers.size(); ++i) {
        LayerOnDevice& layer = on_device.layers[i];
        const std::string name = "blk." + std::to_string(i);
        launch::Planes& planes = layer.planes;
        planes.capacity = static_cast<uint32_t>(kv.plane(i).capacity());
        planes.width = geometry.kv_width();
        planes.element = static_cast<uint32_t>(model::kv_element_bytes(kv.type()));
        planes.view = {static_cast<uint32_t>(layer.local ? MUSER_VIEW_RING : MUSER_VIEW_PLANE)};
        planes.k = make(name + ".K", kv.plane_bytes(i));
        planes.v = make(name + ".V", kv.plane_bytes(i));
        if (kv.journal_bytes(i) > 0) {
            planes.journal_rows = kv.plane(i).rollback_max();
            planes.journal_k = make(name + ".journal.K", kv.journal_bytes(i));
            planes.journal_v = make(name + ".journal.V", kv.journal_bytes(i));
        }
        if (layer.local && !first_local) first_local = i;
        if (!layer.local && !first_global) first_global = i;
    }
    if (first_local && schedule.ring == WrappedRing::staged) {
        const launch::Planes& ring = on_device.layers[*first_local].planes;
        act.shadow = ring;
        act.shadow.journal_k = act.shadow.journal_v = nullptr;
        act.shadow.capacity = geometry.window;
        act.shadow.view = {MUSER_VIEW_SHADOW};
        act.shadow.k = make("shadow.K", act.shadow.bytes());
        act.shadow.v = make("shadow.V", act.shadow.bytes());
    }
}

launch::Vector Engine::Impl::make_vector(const char* label, uint32_t n, bool block_form) {
    launch::Vector vector;
    vector.n = n;
    vector.values = make(label, uint64_t{n} * 4);
    if (block_form) {
        vector.block_form =
            make(std::string(label) + ".blocks", MUSER_BLOCK_FORM_BYTES(uint64_t{n}));
    }
    return vector;
}

void Engine::Impl::make_activations() {
    const model::Geometry& geometry = on_device.geometry;
    // A vector carries its block form where any product that reads it is quantised.
    bool normed = false, attention = false, ffn_act = false;
    for (const LayerOnDevice& layer : on_device.layers) {
        for (const DeviceWeight* weight : {&layer.attn_q, &layer.attn_k, &layer.attn_v,
                                           &layer.attn_gate, &layer.ffn_gate, &layer.ffn_up}) {
            normed = normed || weight->quantised;
        }
        attention = attention || layer.attn_output.quantised;
        ffn_act = ffn_act || layer.ffn_down.quantised;
    }
    const bool head = on_device.output.quantised;
    act.hidden = make_vector("hidden", geometry.hidden, head);
    act.residual = make_vector("residual", geometry.hidden, false);
    act.normed = make_vector("normed", geometry.hidden, normed);
    act.q = make_vector("q", geometry.q_width(), false);
    act.k = make_vector("k", geometry.kv_width(), false);
    act.v = make_vector("v", geometry.kv_width(), false);
    act.gate = make_vector("gate", geometry.q_width(), false);
    if (on_device.faults.skip_gate) {
        act.open_gate = make_vector("open_gate", geometry.q_width(), false);
        const std::vector<float> open(geometry.q_width(), 1000.0F);
        context.write(*act.open_gate.values, 0, open.data(), act.open_gate.bytes());
    }
    act.attention = make_vector("attention", geometry.q_width(), attention);
    act.projected = make_vector("projected", geometry.hidden, false);
    act.ffn_gate = make_vector("ffn_gate", geometry.ff, false);
    act.ffn_up = make_vector("ffn_up", geometry.ff, false);
    act.ffn_act = make_vector("ffn_act", geometry.ff, ffn_act);
    if (schedule.head_input == HeadInput::copied) {
        act.head_input = make_vector("head_input", geometry.hidden, head);
    }
    const uint64_t logit_bytes = uint64_t{geometry.vocab} * 4;
    act.logits.n = geometry.vocab;
    act.logits.values = make("logits", logit_bytes, Placement::host_visible);
    act.flags =
        make("flags", launch::head_groups(geometry.vocab) * uint64_t{4}, Placement::host_visible);
    const uint64_t chunks = std::max<uint64_t>(chunk_bucket(config.context, config.context),
                                               chunk_bucket(geometry.window, geometry.window));
    act.partials.row_bytes = launch::partials_bytes(on_device.heads, chunks + 1);
    act.partials.buffer = make("partials", act.partials.row_bytes);
    act.best = make("best", launch::head_groups(geometry.vocab) * launch::kBestBytes);
    steps = make("steps", kStepsBytes, Placement::host_visible);
}

Memory estimate_memory(const std::string& path, const EngineConfig& config) {
    const model::Model model = model::Model::open(path);
    const model::Geometry& geometry = model.geometry();
    const model::MemoryEstimate estimate =
        model::memory_estimate(geometry, config.context, kv_type(config),
                               model.census().weight_bytes, config.rollback_max);
    Memory memory;
    memory.weights_mapped = estimate.weights_mapped;
    memory.kv = estimate.kv_local + estimate.kv_global;
    memory.shadow = estimate.shadow;
    memory.journal = estimate.journal;
    const uint64_t vectors = 5 * uint64_t{geometry.hidden} + 3 * uint64_t{geometry.q_width()} +
                             2 * uint64_t{geometry.kv_width()} + 3 * uint64_t{geometry.ff} +
                             geometry.vocab;
    const uint64_t chunks = config.context / MUSER_CHUNK + 2;
    memory.activations = vectors * 7 + chunks * geometry.heads * (2 + geometry.head_dim) * 4 +
                         launch::head_groups(geometry.vocab) * launch::kBestBytes + kStepsBytes;
#if !defined(__APPLE__)
    // The device says which matrices it would repack; the file's own pages are not counted twice.
    device::Options options = context_options(config).options;
    const auto device = device::make_device(config.device, options);
    for (const model::Weight* weight : model.weights()) {
        if (weight->rows <= 1 || weight->name == "token_embd.weight") continue;
        const device::WeightLayout layout =
            device->layout({static_cast<uint32_t>(weight->type), weight->rows, weight->cols});
        if (!layout.suffix.empty()) memory.weights_repacked += layout.bytes;
    }
#endif
    return memory;
}

Engine::Engine(const std::string& path, const EngineConfig& config)
    : impl_(std::make_unique<Impl>(path, config)) {}
Engine::~Engine() = default;

uint64_t Engine::position() const { return impl_->kv.position(); }
const model::Geometry& Engine::geometry() const { return impl_->on_device.geometry; }
const std::string& Engine::dead() const { return impl_->dead; }

DeviceDescription Engine::device() const {
    const Context::Description& found = impl_->context.description();
    return {found.name, found.description, found.isa, found.threads, found.weight_bytes};
}

}  // namespace muser
