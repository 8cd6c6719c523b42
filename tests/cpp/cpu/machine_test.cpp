// What the machine is said to be: instruction sets, threads, memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "device/cpu/isa.h"
#include "device/cpu/memory.h"
#include "device/cpu/read_args.h"
#include "device/cpu/read_rate.h"
#include "device/cpu/tables.h"
#include "device/cpu/thread_count.h"
#include "errors.h"

namespace muser::cpu_test {
namespace {

namespace fs = std::filesystem;
using device::cpu::Isa;

TEST(Isa, PortableIsAlwaysThereAndTheBestComesFirst) {
    const auto all = device::cpu::isas();
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all.back(), Isa::portable);
    EXPECT_EQ(device::cpu::choose_isa(""), all.front());
    for (Isa isa : all) EXPECT_EQ(device::cpu::choose_isa(device::cpu::isa_name(isa)), isa);
}

#if defined(__x86_64__)
TEST(Isa, AgreesWithTheCompilersOwnDetection) {
    const auto all = device::cpu::isas();
    const auto has = [&](Isa isa) { return std::find(all.begin(), all.end(), isa) != all.end(); };
    EXPECT_EQ(has(Isa::avx2), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    EXPECT_EQ(has(Isa::avx512vnni),
              __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"));
    EXPECT_FALSE(has(Isa::neon));
}

TEST(Isa, AnUnsupportedOneIsRefusedWithWhatThereIs) {
    for (const char* name : {"neon", "sse9"}) {
        try {
            device::cpu::choose_isa(name);
            FAIL() << name << " was accepted";
        } catch (const ConfigError& error) {
            EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos);
            EXPECT_EQ(error.facts()[1].second, name);
        }
    }
}
#endif

// A file tree like the one the kernel shows.
class Cgroup : public testing::Test {
  protected:
    void SetUp() override {
        root_ = fs::temp_directory_path() /
                ("muser_cgroup_" + std::to_string(reinterpret_cast<uintptr_t>(this)) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::remove_all(root_);
    }
    void TearDown() override { fs::remove_all(root_); }
    void put(const std::string& path, const std::string& text) {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }
    fs::path root_;
};

TEST_F(Cgroup, NoFilesMeanNoQuota) { EXPECT_FALSE(device::cpu::cgroup_cpus(root_)); }

TEST_F(Cgroup, Version2TakesTheLeastAlongThePath) {
    put("proc/self/cgroup", "0::/pod/box\n");
    put("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
    EXPECT_FALSE(device::cpu::cgroup_cpus(root_));
    put("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
    EXPECT_EQ(device::cpu::cgroup_cpus(root_), 1.5);
    put("sys/fs/cgroup/pod/box/cpu.max", "400000 100000\n");
    EXPECT_EQ(device::cpu::cgroup_cpus(root_), 1.5);
}

TEST_F(Cgroup, Version2InsideAContainerReadsTheMount) {
    put("proc/self/cgroup", "0::/seen/by/the/host/only\n");
    put("sys/fs/cgroup/cpu.max", "50000 100000\n");
    EXPECT_EQ(device::cpu::cgroup_cpus(root_), 0.5);
}

TEST_F(Cgroup, Version1ReadsTheCpuController) {
    put("proc/self/cgroup", "12:cpuset:/box\n4:cpu,cpuacct:/box\n1:name=systemd:/box\n");
    put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    EXPECT_FALSE(device::cpu::cgroup_cpus(root_));
    put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "300000\n");
    EXPECT_EQ(device::cpu::cgroup_cpus(root_), 3.0);
}

TEST_F(Cgroup, RubbishIsNoQuota) {
    put("proc/self/cgroup", "rubbish\n0::/box\n");
    put("sys/fs/cgroup/box/cpu.max", "many few\n");
    EXPECT_FALSE(device::cpu::cgroup_cpus(root_));
}

TEST(Threads, DefaultIsWithinTheAffinity) {
    const int threads = device::cpu::default_threads();
    EXPECT_GE(threads, 1);
    EXPECT_LE(threads, device::cpu::affinity_count());
    EXPECT_LE(threads, std::max(1.0, device::cpu::cgroup_cpus().value_or(threads)));
}

TEST(Memory, IsAlignedAndZero) {
    for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{100}, uint64_t{4096}, uint64_t{5000},
                           uint64_t{4} << 20, (uint64_t{6} << 20) + 12345}) {
        const std::shared_ptr<void> memory = device::cpu::allocate_memory(bytes);
        ASSERT_TRUE(memory) << bytes;
        const uint64_t alignment = bytes >= 4u << 20 ? 2u << 20 : bytes >= 4096 ? 4096 : 64;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % alignment, 0u) << bytes;
        const auto* p = static_cast<const char*>(memory.get());
        EXPECT_TRUE(std::all_of(p, p + bytes, [](char c) { return c == 0; })) << bytes;
    }
}

TEST(Memory, WhatCannotBeHadIsNull) {
    EXPECT_FALSE(device::cpu::allocate_memory(uint64_t{1} << 46));
    EXPECT_FALSE(device::cpu::allocate_memory(UINT64_MAX));
    EXPECT_FALSE(device::cpu::allocate_memory(UINT64_MAX - 4096));
}

// A unit's sum is that of all its words: nothing is skipped, nothing read twice.
TEST(ReadProbe, EveryWayReadsEveryWordOnce) {
    const device::cpu::ReadArgs args{3, 4096};
    std::vector<uint64_t> words(args.units * args.unit_bytes / 8);
    for (size_t i = 0; i < words.size(); ++i) words[i] = i * i + 1;
    for (const Isa isa : device::cpu::isas()) {
        const auto ways = device::cpu::probe_kernels(isa);
        EXPECT_GE(ways.count, 4u);
        for (const auto& way : ways) {
            std::vector<uint64_t> sums(args.units);
            std::byte* buffers[] = {nullptr, reinterpret_cast<std::byte*>(words.data()),
                                    reinterpret_cast<std::byte*>(sums.data())};
            const device::cpu::Call call{&args, buffers};
            EXPECT_EQ(way.work(call).units, args.units);
            way.run(call, 0, 1);
            way.run(call, 1, args.units);
            const size_t each = args.unit_bytes / 8;
            for (size_t unit = 0; unit < args.units; ++unit) {
                uint64_t expected = 0;
                for (size_t i = 0; i < each; ++i) expected += words[unit * each + i];
                EXPECT_EQ(sums[unit], expected) << way.name << " " << isa_name(isa);
            }
        }
    }
}

TEST(ReadProbe, TellsWhatItDoes) {
    device::cpu::ReadProbe probe((5 << 20) + 17, 2);
    EXPECT_EQ(probe.bytes(), uint64_t{5} << 20);
    EXPECT_EQ(probe.threads(), 2);
    EXPECT_EQ(probe.isa(), isa_name(device::cpu::choose_isa("")));
    EXPECT_EQ(probe.kernel().rfind("read_", 0), 0u);
    EXPECT_GT(probe.pass(), 0);
    EXPECT_THROW(device::cpu::ReadProbe(1, -1), ConfigError);
}

}  // namespace
}  // namespace muser::cpu_test
