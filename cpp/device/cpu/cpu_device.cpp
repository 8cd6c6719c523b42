// The `cpu` device: kernels of the best instruction set on a pool of threads.
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "device/cpu/command_job.h"
#include "device/cpu/isa.h"
#include "device/cpu/memory.h"
#include "device/cpu/one_kernel.h"
#include "device/cpu/products.h"
#include "device/cpu/tables.h"
#include "device/cpu/thread_count.h"
#include "device/registry.h"
#include "errors.h"

#if !defined(NDEBUG)
#include <cstring>
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace muser::device {
namespace cpu {
namespace {

constexpr int kMostThreads = 1024;

std::string processor_name() {
#if defined(__x86_64__)
    std::string name;
    for (uint32_t leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf) {
        uint32_t words[4] = {};
        if (!__get_cpuid(leaf, &words[0], &words[1], &words[2], &words[3])) return "x86-64";
        name.append(reinterpret_cast<const char*>(words), sizeof words);
    }
    name.resize(name.find('\0') == std::string::npos ? name.size() : name.find('\0'));
    const size_t start = name.find_first_not_of(' ');
    return start == std::string::npos ? "x86-64" : name.substr(start);
#else
    return "AArch64";
#endif
}

// Repacking as a job: a unit is kRepackRows rows.
struct RepackArgs {
    Isa isa;
    const WeightShape* shape;
    const WeightLayout* layout;
    const std::byte* rows;
    std::byte* destination;
};

Work repack_work(const Call& call) {
    const auto& a = *static_cast<const RepackArgs*>(call.args);
    return {(a.shape->rows + kRepackRows - 1) / kRepackRows, 1 + kRepackRows * a.shape->cols / 8};
}

void repack_run(const Call& call, uint64_t begin, uint64_t end) {
    const auto& a = *static_cast<const RepackArgs*>(call.args);
    product_repack(a.isa, *a.shape, *a.layout, a.rows, a.destination, begin * kRepackRows,
                   std::min(end * kRepackRows, a.shape->rows));
}

constexpr KernelImpl kRepack = {"repack", repack_work, repack_run};

uint64_t next_id() {
    static std::atomic<uint64_t> id{0};
    return ++id;
}

class CpuDevice : public Device {
  public:
    CpuDevice(Isa isa, int threads) : isa_(isa), pool_(threads) {
        for (const KernelTable& table : {kernels(isa), product_kernels(isa)}) {
            for (const KernelImpl& impl : table) {
                auto kernel = std::make_shared<CpuKernel>();
                kernel->name = impl.name;
                kernel->impl = &impl;
                kernels_.emplace(impl.name, std::move(kernel));
            }
        }
    }

    std::string_view name() const override { return "cpu"; }
    std::string isa() const override { return std::string(isa_name(isa_)); }
    int threads() const override { return pool_.threads(); }
    std::string description() const override {
        return processor_name() + ", " + isa() + ", " + std::to_string(threads()) +
               (threads() == 1 ? " thread" : " threads");
    }

    std::shared_ptr<stream::Buffer> allocate(uint64_t bytes, MemoryUse use) override {
        std::shared_ptr<void> memory = allocate_memory(bytes);
        if (!memory) return nullptr;
#if !defined(NDEBUG)
        // NaN in every float type: a kernel that reads what nothing wrote shows at once.
        if (use == MemoryUse::device) std::memset(memory.get(), 0xff, bytes);
#else
        (void)use;
#endif
        auto buffer = std::make_shared<stream::Buffer>();
        buffer->id = next_id();
        buffer->allocation = next_id();
        buffer->length = bytes;
        buffer->contents = static_cast<std::byte*>(memory.get());
        buffer->storage = std::move(memory);
        return buffer;
    }

    std::shared_ptr<stream::Buffer> wrap(const void* bytes, uint64_t length) override {
        auto buffer = std::make_shared<stream::Buffer>();
        buffer->id = next_id();
        buffer->allocation = next_id();
        buffer->length = length;
        // Bound as read-only; the stream has one pointer type for both.
        buffer->contents = const_cast<std::byte*>(static_cast<const std::byte*>(bytes));
        return buffer;
    }

    stream::KernelRef kernel(std::string_view kernel_name, std::string_view) override {
        const auto found = kernels_.find(kernel_name);
        return found == kernels_.end() ? nullptr : found->second;
    }

    WeightLayout layout(const WeightShape& shape) const override {
        return product_layout(isa_, shape);
    }

    void repack(const WeightShape& shape, const WeightLayout& layout, const void* rows,
                stream::Buffer& destination, uint64_t offset) override {
        const RepackArgs args{isa_, &shape, &layout, static_cast<const std::byte*>(rows),
                              destination.contents + offset};
        run_kernel(pool_, kRepack, {&args, nullptr});
    }

    void submit(stream::CommandBufferRef commands) override {
        pool_.submit(std::make_shared<CommandJob>(std::move(commands)));
    }

  private:
    Isa isa_;
    std::map<std::string, std::shared_ptr<const CpuKernel>, std::less<>> kernels_;
    Pool pool_;  // last: its threads end before what they use
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Device> make_cpu_device(const Options& options) {
    if (options.threads < 0 || options.threads > cpu::kMostThreads) {
        throw ConfigError(
            "the cpu device cannot have " + std::to_string(options.threads) + " threads",
            {{"setting", "threads"},
             {"found", std::to_string(options.threads)},
             {"expected", "0 (all there are) to " + std::to_string(cpu::kMostThreads)}});
    }
    const int threads = options.threads > 0 ? options.threads : cpu::default_threads();
    return std::make_unique<cpu::CpuDevice>(cpu::choose_isa(options.isa), threads);
}

}  // namespace muser::device
