// Plain reads, to know at which rate this machine's threads read memory: what every other figure is
// judged by. Which number of streams is fastest differs from processor to processor, so there are
// several.
#include "device/cpu/kernel_groups.h"
#include "device/cpu/lanes.h"
#include "device/cpu/read_args.h"

namespace muser::device::cpu::MUSER_ISA {
namespace {

typedef uint64_t Longs __attribute__((vector_size(4 * MUSER_LANES)));
constexpr uint32_t kVectors = 8;  // loads of a step, in registers of their own

Work read_work(const Call& call) { return {arguments<ReadArgs>(call).units, 1'000'000}; }

// The sum of a unit's words, read as kStreams streams side by side.
template <uint32_t kStreams>
MUSER_INLINE uint64_t sum(const std::byte* from, uint64_t bytes) {
    constexpr uint32_t kEach = kVectors / kStreams;
    constexpr uint64_t kStep = kEach * sizeof(Longs);
    const uint64_t stream = bytes / kStreams;
    Longs sums[kVectors] = {};
    for (uint64_t at = 0; at + kStep <= stream; at += kStep) {
#pragma GCC unroll 8
        for (uint32_t s = 0; s < kStreams; ++s) {
#pragma GCC unroll 8
            for (uint32_t i = 0; i < kEach; ++i) {
                sums[s * kEach + i] += load_as<Longs>(from + s * stream + at + i * sizeof(Longs));
            }
        }
    }
    uint64_t total = 0;
    for (const Longs& vector : sums) {
        for (uint32_t i = 0; i < sizeof(Longs) / 8; ++i) total += vector[i];
    }
    return total;
}

template <uint32_t kStreams>
void read(const Call& call, uint64_t begin, uint64_t end) {
    const ReadArgs a = arguments<ReadArgs>(call);
    for (uint64_t unit = begin; unit < end; ++unit) {
        // Stored, so that the loads cannot be left out.
        buffer<uint64_t>(call, 2)[unit] =
            sum<kStreams>(buffer<const std::byte>(call, 1) + unit * a.unit_bytes, a.unit_bytes);
    }
}

constexpr KernelImpl kTable[] = {
    {"read_1_stream", read_work, read<1>},
    {"read_2_streams", read_work, read<2>},
    {"read_4_streams", read_work, read<4>},
    {"read_8_streams", read_work, read<8>},
};

}  // namespace

KernelTable probe_kernels() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace muser::device::cpu::MUSER_ISA
