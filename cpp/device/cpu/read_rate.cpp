#include "device/cpu/read_rate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "device/cpu/isa.h"
#include "device/cpu/memory.h"
#include "device/cpu/one_kernel.h"
#include "device/cpu/read_args.h"
#include "device/cpu/tables.h"
#include "device/cpu/thread_count.h"
#include "errors.h"

namespace muser::device::cpu {
namespace {

constexpr uint64_t kUnitBytes = 1 << 20;

// Writes to each page, so that none of them is the shared page of zeros.
Work fill_work(const Call& call) { return {arguments<ReadArgs>(call).units, 100'000}; }
void fill_run(const Call& call, uint64_t begin, uint64_t end) {
    __builtin_memset(buffer<std::byte>(call, 1) + begin * kUnitBytes, 1,
                     (end - begin) * kUnitBytes);
}
constexpr KernelImpl kFill = {"fill", fill_work, fill_run};

int thread_count(int threads) {
    constexpr int kMostThreads = 1024;
    if (threads >= 0 && threads <= kMostThreads) return threads > 0 ? threads : default_threads();
    throw ConfigError("the read probe cannot have " + std::to_string(threads) + " threads",
                      {{"setting", "threads"},
                       {"found", std::to_string(threads)},
                       {"expected", "0 (all there are) to " + std::to_string(kMostThreads)}});
}

}  // namespace

struct ReadProbe::State {
    ReadArgs args;
    Isa isa = choose_isa("");
    std::shared_ptr<void> memory;
    std::vector<uint64_t> sums;
    const KernelImpl* best = nullptr;
    Pool pool;  // last: its threads end before what they use

    State(uint64_t bytes, int threads)
        : args{std::max<uint64_t>(1, bytes / kUnitBytes), kUnitBytes}, pool(threads) {
        memory = allocate_memory(args.units * kUnitBytes);
        if (!memory) {
            throw DeviceMemoryError("no memory for the read probe",
                                    {{"bytes", std::to_string(args.units * kUnitBytes)}});
        }
        sums.resize(args.units);
    }
    double run(const KernelImpl& kernel) {
        std::byte* buffers[] = {nullptr, static_cast<std::byte*>(memory.get()),
                                reinterpret_cast<std::byte*>(sums.data())};
        return run_kernel(pool, kernel, {&args, buffers});
    }
};

ReadProbe::ReadProbe(uint64_t bytes, int threads)
    : state_(std::make_unique<State>(bytes, thread_count(threads))) {
    state_->run(kFill);
    double least = 0;
    for (const KernelImpl& kernel : probe_kernels(state_->isa)) {
        const double seconds = state_->run(kernel);
        if (state_->best != nullptr && seconds >= least) continue;
        state_->best = &kernel;
        least = seconds;
    }
}

ReadProbe::~ReadProbe() = default;

double ReadProbe::pass() { return static_cast<double>(bytes()) / state_->run(*state_->best); }
uint64_t ReadProbe::bytes() const { return state_->args.units * kUnitBytes; }
int ReadProbe::threads() const { return state_->pool.threads(); }
std::string ReadProbe::isa() const { return std::string(isa_name(state_->isa)); }
std::string ReadProbe::kernel() const { return state_->best->name; }

}  // namespace muser::device::cpu
