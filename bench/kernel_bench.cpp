// muser_bench: every kernel of the CPU device at the model's shapes, in GB/s and in percent of the
// bandwidth at which the same threads read memory in the same run.
//
//   cmake --preset release && cmake --build --preset release --target muser_bench
//   build/release/bench/muser_bench --threads=2 --isa=avx2 --benchmark_filter=attend
//   build/release/bench/muser_bench --commit=$(git rev-parse HEAD) --benchmark_format=json
//
// Times are the device's own: a command buffer's start to end, divided by its dispatches.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>

#include "bench/cases.h"
#include "device/cpu/read_rate.h"
#include "device/registry.h"
#include "errors.h"

namespace muser::bench {
namespace {

using device::Device;

// ---- recording ---------------------------------------------------------------------------------

stream::CommandBufferRef record(const stream::KernelRef& kernel, const Prepared& p,
                                uint64_t first_turn, uint64_t dispatches) {
    auto commands = std::make_shared<stream::CommandBuffer>();
    commands->labels = {p.kernel};
    commands->args = p.args;
    commands->encoders.push_back({false, 0, static_cast<uint32_t>(dispatches)});
    for (uint64_t i = 0; i < dispatches; ++i) {
        stream::Dispatch dispatch;
        dispatch.kernel = kernel;
        dispatch.args_length = static_cast<uint32_t>(p.args.size());
        dispatch.first_binding = static_cast<uint32_t>(commands->bindings.size());
        for (const Bound& bound : p.buffers(first_turn + i)) {
            const uint32_t argument =
                static_cast<uint32_t>(commands->bindings.size()) - dispatch.first_binding + 1;
            commands->bindings.push_back({argument, bound.buffer, bound.offset});
            ++dispatch.binding_count;
        }
        commands->dispatches.push_back(std::move(dispatch));
        commands->commands.push_back({stream::Command::Kind::dispatch, static_cast<uint32_t>(i)});
    }
    return commands;
}

// Seconds from start to end on the device.
double run(Device& device, const stream::CommandBufferRef& commands) {
    device.submit(commands);
    std::unique_lock lock(commands->mutex);
    commands->changed.wait(lock, [&] { return commands->status >= stream::Status::completed; });
    if (commands->status == stream::Status::error) {
        throw DeviceError(commands->error_message.empty() ? "the command buffer failed"
                                                          : commands->error_message);
    }
    return commands->end_seconds - commands->start_seconds;
}

// The best of several passes over memory that no cache holds, in bytes per second.
double read_bandwidth(int threads) {
    device::cpu::ReadProbe probe(uint64_t{1} << 30, threads);
    double best = 0;
    for (int pass = 0; pass < 7; ++pass) best = std::max(best, probe.pass());
    return best;
}

// ---- benchmarks --------------------------------------------------------------------------------

void measure(benchmark::State& state, Device& device, const Case& one, double bandwidth) {
    const Prepared p = one.prepare(device);
    const stream::KernelRef kernel = device.kernel(p.kernel, "");
    if (kernel == nullptr) {
        state.SkipWithError(("no kernel " + p.kernel).c_str());
        return;
    }
    // Short kernels are repeated in one command buffer, until it takes about a millisecond.
    double once = 1;
    for (int i = 0; i < 3; ++i) once = std::min(once, run(device, record(kernel, p, 0, 1)));
    const uint64_t dispatches =
        static_cast<uint64_t>(std::clamp(1e-3 / std::max(once, 1e-9), 1.0, 200.0));
    uint64_t turn = 0;
    std::vector<double> times;
    for (auto _ : state) {
        times.push_back(run(device, record(kernel, p, turn, dispatches)) /
                        static_cast<double>(dispatches));
        turn += dispatches;
        state.SetIterationTime(times.back());
    }
    // The median: other programs on the machine only ever make it slower.
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    const double rate = p.bytes / times[times.size() / 2];
    state.counters["GB/s"] = rate * 1e-9;
    state.counters["%read"] = 100 * rate / bandwidth;
}

// Takes --name=value off the command line.
std::string take_option(int& argc, char** argv, const std::string& name, std::string value) {
    const std::string prefix = "--" + name + "=";
    int kept = 1;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument.starts_with(prefix)) {
            value = argument.substr(prefix.size());
        } else {
            argv[kept++] = argv[i];
        }
    }
    argc = kept;
    return value;
}

}  // namespace

BufferRef memory(Device& device, uint64_t bytes) {
    return device.allocate(bytes, device::MemoryUse::shared);
}

BufferRef vector(Device& device, uint64_t n) {
    BufferRef buffer = memory(device, n * sizeof(float));
    std::vector<float> values(n);
    uint32_t state = 1;
    for (float& x : values) {
        state = state * 1664525u + 1013904223u;
        x = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    }
    device.write(*buffer, 0, values.data(), n * sizeof(float));
    return buffer;
}

BufferRef block_form(Device& device, uint64_t n) {
    const uint32_t length = static_cast<uint32_t>(n);
    const BufferRef x = vector(device, n), y = vector(device, n);
    const BufferRef form = memory(device, MUSER_BLOCK_FORM_BYTES(n));
    const Prepared p = {"silu_mul_b16", as_args(VectorArgs{length, length / MUSER_BLOCK}),
                        [&](uint64_t) {
                            return std::vector<Bound>{{x}, {x}, {y}, {form}};
                        },
                        0};
    run(device, record(device.kernel(p.kernel, ""), p, 0, 1));
    return form;
}

int bench_main(int argc, char** argv) {
    device::Options options;
    options.isa = take_option(argc, argv, "isa", "");
    options.threads = std::stoi(take_option(argc, argv, "threads", "0"));
    const std::string commit = take_option(argc, argv, "commit", "not given");
    const auto device = device::make_cpu_device(options);
    const double bandwidth = read_bandwidth(device->threads());
    benchmark::AddCustomContext("device", device->description());
    benchmark::AddCustomContext("commit", commit);
    benchmark::AddCustomContext("read_GB/s", std::to_string(bandwidth * 1e-9));

    std::vector<Case> cases = kernel_cases();
    for (Case& one : product_cases()) cases.push_back(std::move(one));
    for (const Case& one : cases) {
        benchmark::RegisterBenchmark(
            one.name.c_str(),
            [&](benchmark::State& state) { measure(state, *device, one, bandwidth); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(25);
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}

}  // namespace muser::bench

int main(int argc, char** argv) {
    try {
        return muser::bench::bench_main(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "muser_bench: %s\n", error.what());
        return 1;
    }
}
