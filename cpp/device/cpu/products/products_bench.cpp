// Speed of the product kernels beside a plain read of the same bytes, as CSV.
//
//   muser_products_bench [--isa NAME] [--kernel SUBSTRING] [--rows N] [--cols N] [--columns
//   N,N,...]
//                        [--pairs N]
//
// One thread, processor time. Each line is the median of `pairs` interleaved pairs (read probe,
// kernel): weight bytes and multiply-accumulates per second, and the kernel's read rate as a share
// of the probe's.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "contract/blocks.h"
#include "contract/ftz.h"
#include "device/cpu/kernel.h"
#include "device/cpu/products.h"
#include "device/cpu/read_args.h"
#include "device/cpu/tables.h"
#include "metal/kernels/args.h"

namespace {

using namespace muser;
using device::cpu::Isa;
using device::cpu::KernelImpl;

struct Settings {
    std::string isa, kernel;
    uint64_t rows = 19968, cols = 6656;
    std::vector<uint32_t> columns{1};
    int pairs = 9;
};

// This thread's processor time: other work on the machine stretches wall time at random.
double seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
    return v[v.size() / 2];
}

std::byte* huge(uint64_t bytes) {
    constexpr uint64_t kPage = 2 << 20;
    bytes = (bytes + kPage - 1) / kPage * kPage;
    void* p =
        mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    auto at = (reinterpret_cast<uintptr_t>(p) + kPage - 1) / kPage * kPage;
    madvise(reinterpret_cast<void*>(at), bytes, MADV_HUGEPAGE);
    return reinterpret_cast<std::byte*>(at);
}

void fill(std::byte* to, uint64_t bytes) {
    uint64_t state = 0x9e3779b97f4a7c15;
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // No byte pattern of an f16 infinity or of a subnormal: keeps factors ordinary.
        const uint64_t word = state & 0x3b3b3b3b3b3b3b3b;
        std::memcpy(to + i, &word, 8);
    }
}

// As fast as one thread reads: the best way of several.
double read_seconds(Isa isa, std::byte* from, uint64_t bytes) {
    const device::cpu::ReadArgs args{std::max<uint64_t>(1, bytes >> 20), 1 << 20};
    static std::vector<uint64_t> sums;
    sums.resize(args.units);
    std::byte* buffers[] = {nullptr, from, reinterpret_cast<std::byte*>(sums.data())};
    double least = 0;
    for (const KernelImpl& kernel : device::cpu::probe_kernels(isa)) {
        const double start = seconds();
        kernel.run({&args, buffers}, 0, args.units);
        const double time = seconds() - start;
        if (least == 0 || time < least) least = time;
    }
    return least * static_cast<double>(bytes) / static_cast<double>(args.units << 20);
}

device::cpu::KernelTable table(Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx2) return device::cpu::product_kernels_avx2();
    if (isa == Isa::avx512vnni) return device::cpu::product_kernels_avx512vnni();
    if (isa == Isa::avx512amx) return device::cpu::product_kernels_avx512amx();
#elif defined(__aarch64__)
    if (isa == Isa::neon) return device::cpu::product_kernels_neon();
#endif
    return device::cpu::product_kernels_portable();
}

struct Type {
    const char* text;
    contract::WeightType type;
};
constexpr Type kTypes[] = {
    {"q4_K_b16", contract::WeightType::Q4_K}, {"q5_K_b16", contract::WeightType::Q5_K},
    {"q6_K_b16", contract::WeightType::Q6_K}, {"q8_0_b16", contract::WeightType::Q8_0},
    {"bf16_f32", contract::WeightType::BF16}, {"_f16_f32", contract::WeightType::F16},
    {"_f32_f32", contract::WeightType::F32},
};

void measure(const Settings& s, Isa isa, const KernelImpl& kernel) {
    const std::string name = kernel.name;
    const Type* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& t) {
        return name.find(t.text) != std::string::npos;
    });
    const device::WeightShape shape{static_cast<uint32_t>(type->type), s.rows, s.cols};
    const uint64_t ggml_bytes = s.rows * contract::row_bytes(type->type, s.cols);
    device::WeightLayout layout{"", ggml_bytes};
    if (name.find("_r16") != std::string::npos) {
        layout = device::cpu::product_layout(isa, shape);
    }
    const bool silu = name.find("silu") != std::string::npos;
    std::byte* weights = huge(layout.bytes);
    fill(weights, layout.bytes);  // any bytes are a matrix, in any layout
    const uint32_t most = *std::max_element(s.columns.begin(), s.columns.end());
    const uint64_t vector_bytes = std::max<uint64_t>(MUSER_BLOCK_FORM_STRIDE(s.cols), 4 * s.cols);
    std::byte* x = huge(vector_bytes * most);
    fill(x, vector_bytes * most);
    std::byte* y = huge(4 * s.rows * most);
    std::byte* form = huge(MUSER_BLOCK_FORM_STRIDE(s.rows) * most);
    for (uint32_t columns : s.columns) {
        const MatVecArgs args{static_cast<uint32_t>(s.rows), static_cast<uint32_t>(s.cols), columns,
                              static_cast<uint32_t>(s.rows % 256 ? 0 : s.rows / 256)};
        std::byte* plain[] = {nullptr, weights, x, y};
        std::byte* fused[] = {nullptr, weights, weights, x, y, form};
        const device::cpu::Call call{&args, silu ? fused : plain};
        const contract::FlushSubnormals flush;
        const uint64_t units = kernel.work(call).units;
        const int pairs = columns > 16 ? std::min(3, s.pairs) : s.pairs;
        std::vector<double> read, run;
        for (int i = 0; i < pairs; ++i) {
            read.push_back(read_seconds(isa, weights, layout.bytes));
            const double start = seconds();
            kernel.run(call, 0, units);
            run.push_back((seconds() - start) / (silu ? 2 : 1));
        }
        const double time = median(run);
        std::printf("%s,%s,%lu,%lu,%u,%.2f,%.2f,%.3f,%.1f\n", isa_name(isa).data(), kernel.name,
                    s.rows, s.cols, columns, static_cast<double>(layout.bytes) / time / 1e9,
                    static_cast<double>(layout.bytes) / median(read) / 1e9, median(read) / time,
                    static_cast<double>(s.rows * s.cols * columns) / time / 1e9);
        std::fflush(stdout);
    }
    munmap(weights, layout.bytes);
}

std::vector<uint32_t> numbers(const char* text) {
    std::vector<uint32_t> out;
    for (const char* at = text; *at != 0;) {
        char* end = nullptr;
        out.push_back(static_cast<uint32_t>(std::strtoul(at, &end, 10)));
        at = *end == ',' ? end + 1 : end;
    }
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    Settings s;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string option = argv[i];
        if (option == "--isa") s.isa = argv[i + 1];
        if (option == "--kernel") s.kernel = argv[i + 1];
        if (option == "--rows") s.rows = std::strtoull(argv[i + 1], nullptr, 10);
        if (option == "--cols") s.cols = std::strtoull(argv[i + 1], nullptr, 10);
        if (option == "--columns") s.columns = numbers(argv[i + 1]);
        if (option == "--pairs") s.pairs = std::atoi(argv[i + 1]);
    }
    const Isa isa = device::cpu::choose_isa(s.isa);
    std::printf("isa,kernel,rows,cols,columns,gb_per_s,read_gb_per_s,ratio,gmac_per_s\n");
    for (const KernelImpl& kernel : table(isa)) {
        if (std::string(kernel.name).find(s.kernel) != std::string::npos) measure(s, isa, kernel);
    }
    return 0;
}
