// The device through its interface: command buffers, their status and times, errors, ownership.
#include "device/device.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "contract/ftz.h"
#include "device/cpu/isa.h"
#include "errors.h"
#include "metal/kernels/args.h"
#include "recorder.h"
#include "support.h"

namespace muser::cpu_test {
namespace {

using device::make_device;
using device::MemoryUse;
using device::Options;
using stream::Status;

Options threads(int count) {
    Options options;
    options.threads = count;
    return options;
}

TEST(Registry, KnowsTheCpuAndRefusesOthers) {
    const auto names = device::device_names();
    EXPECT_NE(std::find(names.begin(), names.end(), "cpu"), names.end());
    EXPECT_THROW(make_device("abacus", {}), ConfigError);
}

TEST(CpuDevice, SaysWhatItIs) {
    const auto device = make_device("cpu", threads(3));
    EXPECT_EQ(device->name(), "cpu");
    EXPECT_EQ(device->threads(), 3);
    EXPECT_EQ(device->isa(), device::cpu::isa_name(device::cpu::isas().front()));
    EXPECT_NE(device->description().find("3 threads"), std::string::npos);
    EXPECT_GE(make_device("cpu", {})->threads(), 1);
}

TEST(CpuDevice, RefusesBadOptions) {
    EXPECT_THROW(make_device("cpu", threads(-1)), ConfigError);
    EXPECT_THROW(make_device("cpu", threads(100000)), ConfigError);
    Options options;
    options.isa = "sse9";
    EXPECT_THROW(make_device("cpu", options), ConfigError);
}

TEST(CpuDevice, HasItsKernelsAndNoOthers) {
    const auto device = make_device("cpu", threads(1));
    const stream::KernelRef kernel = device->kernel("rms_norm_f32", "");
    ASSERT_TRUE(kernel);
    EXPECT_EQ(kernel->name, "rms_norm_f32");
    EXPECT_EQ(kernel->execution_width, 32u);
    EXPECT_TRUE(device->kernel("mul_mv_q4_K_b16", ""));
    EXPECT_FALSE(device->kernel("rms_norm_f64", ""));
}

TEST(CpuDevice, WrapsTheCallersMemory) {
    const auto device = make_device("cpu", threads(1));
    const std::vector<float> mine(64, 2.5f);
    const auto buffer = device->wrap(mine.data(), 256);
    EXPECT_EQ(buffer->contents, reinterpret_cast<const std::byte*>(mine.data()));
    EXPECT_EQ(buffer->length, 256u);
    EXPECT_NE(buffer->id, device->wrap(mine.data(), 256)->id);
}

// gate_b16 on n elements: attention *= sigmoid(gate); with gate 0 it halves.
struct Halving {
    explicit Halving(device::Device& d, uint32_t n)
        : args{n, 0},
          gate(upload(d, std::vector<float>(n))),
          x(upload(d, std::vector<float>(n, 1024.0f))),
          form(upload(d, std::vector<float>(1))) {}
    void record(Recorder& r) const { r.dispatch("gate_b16", args, {gate, x, form}); }
    VectorArgs args;
    BufferRef gate, x, form;
};

class CpuDeviceThreads : public testing::TestWithParam<int> {};

TEST_P(CpuDeviceThreads, OrdersEpochsOfBothEncoderKinds) {
    const auto device = make_device("cpu", threads(GetParam()));
    const Halving large(*device, 60000), small(*device, 40), other(*device, 50000);
    Recorder r(*device);
    r.encoder(true);
    large.record(r);
    other.record(r);  // independent: the same epoch
    r.barrier();
    large.record(r);
    r.barrier();
    small.record(r);
    r.encoder(false);
    for (int i = 0; i < 4; ++i) large.record(r);
    small.record(r);
    const auto commands = r.submit();
    EXPECT_EQ(wait(*commands), Status::completed);
    EXPECT_GT(commands->start_seconds, 0);
    EXPECT_GE(commands->end_seconds, commands->start_seconds);
    EXPECT_EQ(download<float>(*device, large.x), std::vector<float>(60000, 16.0f));
    EXPECT_EQ(download<float>(*device, other.x), std::vector<float>(50000, 512.0f));
    EXPECT_EQ(download<float>(*device, small.x), std::vector<float>(40, 256.0f));
    EXPECT_TRUE(commands->label_times.empty());
}

TEST_P(CpuDeviceThreads, KeepsManyBuffersInOrder) {
    const auto device = make_device("cpu", threads(GetParam()));
    const Halving h(*device, 30000);
    std::vector<stream::CommandBufferRef> all;
    for (int i = 0; i < 64; ++i) {
        Recorder r(*device);
        r.encoder(true);
        h.record(r);
        all.push_back(r.submit());
    }
    for (const auto& commands : all) EXPECT_EQ(wait(*commands), Status::completed);
    for (size_t i = 1; i < all.size(); ++i) {
        EXPECT_GE(all[i]->start_seconds, all[i - 1]->end_seconds);
    }
    EXPECT_EQ(download<float>(*device, h.x), std::vector<float>(30000, 0x1p-54f));
}

TEST_P(CpuDeviceThreads, TimesClosures) {
    const auto device = make_device("cpu", threads(GetParam()));
    const Halving h(*device, 60000);
    Recorder r(*device);
    r.encoder(true);
    for (const char* label : {"first", "second", "third"}) {
        r.closure(label);
        h.record(r);
        if (std::string(label) == "second") {  // a barrier inside a closure
            r.barrier();
            h.record(r);
        }
        r.barrier();
    }
    r.commands().time_labels = true;
    const auto commands = r.submit();
    ASSERT_EQ(wait(*commands), Status::completed);
    ASSERT_EQ(commands->label_times.size(), 3u);
    double last = commands->start_seconds;
    for (uint32_t i = 0; i < 3; ++i) {
        const stream::LabelTime& time = commands->label_times[i];
        EXPECT_EQ(time.label, i);
        EXPECT_GE(time.start_seconds, last);
        EXPECT_GT(time.end_seconds, time.start_seconds);
        last = time.end_seconds;
    }
    EXPECT_LE(last, commands->end_seconds);
}

TEST_P(CpuDeviceThreads, FinishesWhatIsInFlightWhenDestroyed) {
    std::vector<stream::CommandBufferRef> all;
    {
        const auto device = make_device("cpu", threads(GetParam()));
        const Halving h(*device, 60000);
        for (int i = 0; i < 10; ++i) {
            Recorder r(*device);
            r.encoder(true);
            h.record(r);
            all.push_back(r.submit());
        }
    }
    for (const auto& commands : all) EXPECT_EQ(commands->status, Status::completed);
}

INSTANTIATE_TEST_SUITE_P(Counts, CpuDeviceThreads, testing::Values(1, 2, 3, 8));

TEST(CpuDevice, LeavesTheCallersFloatModeAlone) {
    const uint64_t before = contract::float_mode();
    const auto device = make_device("cpu", threads(2));
    const Halving h(*device, 1000);
    Recorder r(*device);
    r.encoder(true);
    h.record(r);
    EXPECT_EQ(wait(*r.submit()), Status::completed);
    EXPECT_EQ(contract::float_mode(), before);
}

TEST(CpuDevice, AnEmptyBufferCompletes) {
    const auto device = make_device("cpu", threads(2));
    EXPECT_EQ(wait(*Recorder(*device).submit()), Status::completed);
    Recorder r(*device);
    r.encoder(true).barrier();
    EXPECT_EQ(wait(*r.submit()), Status::completed);
}

TEST(CpuDevice, ABadDispatchIsAnErrorThatNamesIt) {
    const auto device = make_device("cpu", threads(2));
    const Halving h(*device, 1000);
    struct Foreign : stream::Kernel {};
    const auto foreign = std::make_shared<Foreign>();
    auto bare = std::make_shared<stream::Buffer>();
    bare->length = 4000;
    for (int kind = 0; kind < 3; ++kind) {
        Recorder r(*device);
        r.encoder(true).closure("good");
        h.record(r);
        r.barrier().closure("bad");
        if (kind == 0) r.add(foreign, &h.args, sizeof h.args, {h.gate, h.x, h.form});
        if (kind == 1) r.dispatch("gate_b16", h.args, {h.gate, bare, h.form});
        if (kind == 2) {
            h.record(r);
            r.commands().bindings.back().offset = 1u << 20;
        }
        const auto commands = r.submit();
        ASSERT_EQ(wait(*commands), Status::error) << kind;
        EXPECT_EQ(commands->error, stream::ErrorCode::invalid_resource);
        EXPECT_EQ(commands->error_label, 1);
        EXPECT_FALSE(commands->error_message.empty());
    }
    // Nothing of a refused buffer ran, and the device goes on.
    EXPECT_EQ(download<float>(*device, h.x), std::vector<float>(1000, 1024.0f));
    Recorder r(*device);
    r.encoder(true);
    h.record(r);
    EXPECT_EQ(wait(*r.submit()), Status::completed);
}

TEST(CpuDevice, AllocatesZeroedMemoryOrNothing) {
    const auto device = make_device("cpu", threads(1));
    const auto buffer = device->allocate(1000, MemoryUse::shared);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(download<uint8_t>(*device, buffer), std::vector<uint8_t>(1000, 0));
    EXPECT_FALSE(device->allocate(uint64_t{1} << 46, MemoryUse::weights));
}

}  // namespace
}  // namespace muser::cpu_test
