// Recording and running dispatches on the emulator in tests: what a launcher and the encoder do,
// without Metal.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#ifndef MUSER_HOST_COMPILER
#define MUSER_HOST_COMPILER
#endif
#include "contract/quantise.h"
#include "device/emulator/emulator_device.h"
#include "metal/kernels/args.h"
#include "metal/kernels/launch_shapes.h"
#include "metal/kernels/step_reads.h"

namespace muser::emulator_test {

using stream::Access;
using stream::BufferRef;
using stream::RowRule;

// One buffer argument and what the launcher declares of it.
struct Use {
    uint32_t argument;
    BufferRef buffer;
    std::vector<stream::DeclaredAccess> accesses;
    uint64_t offset = 0;
};

inline Use reads(uint32_t argument, BufferRef buffer) {
    return {argument, buffer, {{argument, Access::read, 0, buffer->length, {}}}};
}
inline Use writes(uint32_t argument, BufferRef buffer) {
    return {argument, buffer, {{argument, Access::write, 0, buffer->length, {}}}};
}
inline Use updates(uint32_t argument, BufferRef buffer) {
    return {argument, buffer, {{argument, Access::read_write, 0, buffer->length, {}}}};
}
inline Use unused(uint32_t argument, BufferRef buffer) { return {argument, buffer, {}}; }

// The step slot, read where the kernel says it reads it.
inline Use step_use(std::string_view kernel, BufferRef step,
                    const kernels::StepReadFacts& facts = {}) {
    Use use{1, step, {}};
    for (const kernels::StepRead& read : kernels::step_reads(kernel, facts)) {
        stream::DeclaredAccess access{1, Access::read, read.offset, read.bytes, {}};
        if (read.if_overwrite) {
            access.rows = {true, 1,         RowRule::kConstant, offsetof(StepValues, overwrite) / 4,
                           0,    read.bytes};
        }
        use.accesses.push_back(access);
    }
    return use;
}

class Machine {
  public:
    explicit Machine(uint64_t seed = 0) : device_(options(seed)) {}
    emulator::EmulatorDevice& device() { return device_; }

    template <typename T>
    BufferRef upload(const std::vector<T>& values) {
        auto buffer = device_.allocate(values.size() * sizeof(T), device::MemoryUse::shared);
        device_.write(*buffer, 0, values.data(), values.size() * sizeof(T));
        return buffer;
    }
    // Poisoned: what a kernel must not read before it has been written.
    BufferRef blank(uint64_t bytes) { return device_.allocate(bytes, device::MemoryUse::device); }

    template <typename T>
    std::vector<T> download(const BufferRef& buffer) {
        std::vector<T> out(buffer->length / sizeof(T));
        device_.read(*buffer, 0, out.data(), out.size() * sizeof(T));
        return out;
    }

  private:
    static device::Options options(uint64_t seed) {
        device::Options out;
        out.seed = seed;
        return out;
    }
    emulator::EmulatorDevice device_;
};

class Recording {
  public:
    explicit Recording(Machine& machine, bool concurrent = true)
        : machine_(machine), commands_(std::make_shared<stream::CommandBuffer>()) {
        encoder(concurrent);
    }
    Machine& machine() { return machine_; }
    const stream::CommandBufferRef& commands() const { return commands_; }

    void encoder(bool concurrent) {
        commands_->encoders.push_back(
            {concurrent, static_cast<uint32_t>(commands_->commands.size()), 0});
    }

    template <typename Args>
    void dispatch(std::string_view kernel, const Args& args, uint64_t units, uint32_t columns,
                  const std::vector<Use>& uses) {
        const kernels::KernelShape* shape = kernels::find_kernel_shape(kernel);
        ASSERT_NE(shape, nullptr) << kernel;
        const kernels::LaunchShape launch = kernels::launch_shape(*shape, units, columns);
        dispatch_groups(kernel, args, {launch.groups_x, launch.groups_y, 1}, launch.threads, uses);
    }

    template <typename Args>
    void dispatch_groups(std::string_view kernel, const Args& args, stream::Size3 groups,
                         uint32_t threads, const std::vector<Use>& uses) {
        stream::CommandBuffer& commands = *commands_;
        stream::Dispatch dispatch;
        dispatch.kernel = machine_.device().kernel(kernel, "");
        ASSERT_NE(dispatch.kernel, nullptr) << kernel;
        dispatch.label = static_cast<uint32_t>(commands.labels.size());
        commands.labels.emplace_back(kernel);
        dispatch.groups = groups;
        dispatch.threads = {threads, 1, 1};
        dispatch.args_offset = static_cast<uint32_t>((commands.args.size() + 15) / 16 * 16);
        dispatch.args_length = sizeof(Args);
        commands.args.resize(dispatch.args_offset + sizeof(Args));
        std::memcpy(commands.args.data() + dispatch.args_offset, &args, sizeof(Args));
        dispatch.first_binding = static_cast<uint32_t>(commands.bindings.size());
        dispatch.binding_count = static_cast<uint32_t>(uses.size());
        dispatch.first_access = static_cast<uint32_t>(commands.accesses.size());
        for (const Use& use : uses) {
            commands.bindings.push_back({use.argument, use.buffer, use.offset});
            commands.accesses.insert(commands.accesses.end(), use.accesses.begin(),
                                     use.accesses.end());
        }
        dispatch.access_count =
            static_cast<uint32_t>(commands.accesses.size()) - dispatch.first_access;
        push({stream::Command::Kind::dispatch, static_cast<uint32_t>(commands.dispatches.size())});
        commands.dispatches.push_back(dispatch);
    }

    void barrier() {
        push({stream::Command::Kind::barrier, static_cast<uint32_t>(commands_->barriers.size())});
        commands_->barriers.push_back({});
    }
    void barrier(const std::vector<BufferRef>& resources) {
        push({stream::Command::Kind::barrier, static_cast<uint32_t>(commands_->barriers.size())});
        commands_->barriers.push_back({false, static_cast<uint32_t>(commands_->resources.size()),
                                       static_cast<uint32_t>(resources.size()), 0});
        commands_->resources.insert(commands_->resources.end(), resources.begin(), resources.end());
    }

    // What a buffer must hold afterwards; NaNs are equal to each other.
    void expect(const BufferRef& buffer, const std::vector<float>& values, const char* what = "") {
        checks_.push_back([this, buffer, values, what] {
            const auto found = machine_.download<float>(buffer);
            ASSERT_EQ(found.size(), values.size()) << what;
            for (size_t i = 0; i < values.size(); ++i) {
                if (values[i] != values[i] && found[i] != found[i]) continue;
                ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(values[i]))
                    << what << " element " << i << ": found " << found[i] << ", expected "
                    << values[i];
            }
        });
    }
    template <typename T>
    void expect_bits(const BufferRef& buffer, const std::vector<T>& values, const char* what = "") {
        checks_.push_back([this, buffer, values, what] {
            const auto found = machine_.download<T>(buffer);
            ASSERT_EQ(found.size(), values.size()) << what;
            for (size_t i = 0; i < values.size(); ++i) {
                ASSERT_EQ(+found[i], +values[i]) << what << " element " << i;
            }
        });
    }
    void check() const {
        for (const auto& one : checks_) one();
    }

    void submit() { machine_.device().submit(commands_); }
    stream::Status wait() {
        std::unique_lock lock(commands_->mutex);
        commands_->changed.wait(lock, [&] {
            return commands_->status == stream::Status::completed ||
                   commands_->status == stream::Status::error;
        });
        return commands_->status;
    }
    void run() {
        submit();
        ASSERT_EQ(wait(), stream::Status::completed) << commands_->error_message;
    }

  private:
    void push(stream::Command command) {
        commands_->commands.push_back(command);
        ++commands_->encoders.back().command_count;
    }

    Machine& machine_;
    stream::CommandBufferRef commands_;
    std::vector<std::function<void()>> checks_;
};

inline std::string text_of(const emulator::TraceReport& report) {
    std::string out;
    for (const emulator::Finding& finding : report.findings) out += finding.text() + "\n";
    return out;
}

// Builds and runs the recording in order, shuffled and traced; the results must hold each time, and
// what the kernels touch must be exactly what was declared.
inline void expect_kernels(const std::function<void(Recording&)>& build) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{11}}) {
        Machine machine(seed);
        Recording recording(machine);
        build(recording);
        recording.run();
        recording.check();
    }
    if (!emulator::tracer_available()) return;
    Machine machine;
    Recording recording(machine);
    build(recording);
    const emulator::TraceReport report = emulator::trace(machine.device(), recording.commands());
    EXPECT_EQ(text_of(report), "");
    EXPECT_GT(report.loads + report.stores, 0u);
    recording.check();
}

// The block form of n values, laid out as args.h says.
inline std::vector<uint8_t> block_form(const std::vector<float>& x) {
    const size_t n = x.size();
    std::vector<contract::BlockForm> blocks(n / 256);
    contract::quantise(x.data(), n, blocks.data());
    std::vector<uint8_t> out(MUSER_BLOCK_FORM_BYTES(n));
    for (size_t b = 0; b < blocks.size(); ++b) {
        std::memcpy(&out[256 * b], blocks[b].hi, 256);
        std::memcpy(&out[MUSER_BLOCK_LO(n) + 256 * b], blocks[b].lo, 256);
        std::memcpy(&out[MUSER_BLOCK_SUMS(n) + 64 * b], blocks[b].sums, 64);
        std::memcpy(&out[MUSER_BLOCK_SCALES(n) + 4 * b], &blocks[b].s, 4);
    }
    return out;
}

enum class Values { ordinary, wide, sparse, not_finite };
inline constexpr Values kAllValues[] = {Values::ordinary, Values::wide, Values::sparse,
                                        Values::not_finite};

inline std::vector<float> random_floats(size_t n, std::mt19937& random,
                                        Values kind = Values::ordinary) {
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> exponent(-100, 60);
    std::vector<float> out(n);
    for (float& x : out) {
        x = normal(random);
        if (kind == Values::wide) x = std::ldexp(x, exponent(random));
        if (kind == Values::sparse) {
            const uint32_t pick = random() % 4;
            if (pick == 0) x = 0.0f;
            if (pick == 1) x = -0.0f;
            // Subnormal.
            if (pick == 2) x = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x807fffffu);
        }
    }
    if (kind == Values::not_finite && n > 0) {
        constexpr uint32_t kBits[] = {0x7f800000u, 0xff800000u, 0x7fc00000u};
        out[random() % n] = std::bit_cast<float>(kBits[random() % 3]);
    }
    return out;
}

}  // namespace muser::emulator_test
