// The scheduler: what the recording orders stays ordered under every seed, and what it does not
// order comes out differently under some.
#include <algorithm>
#include <set>

#include "kernel_run.h"

namespace muser::emulator_test {
namespace {

constexpr uint32_t kN = 3000;  // three threadgroups of copy_row_b16

// A copy of kN floats; the kernel with the fewest habits.
void copy(Recording& r, const BufferRef& from, const BufferRef& to) {
    r.dispatch("copy_row_b16", VectorArgs{kN, 0}, kN, 1,
               {reads(1, from), unused(2, from), writes(3, to), unused(4, to)});
}

// What the last buffer holds over the seeds, as the distinct results.
std::set<std::vector<float>> outcomes(
    const std::function<void(Machine&, std::vector<std::unique_ptr<Recording>>&,
                             std::vector<BufferRef>&)>& build,
    uint64_t seeds) {
    std::set<std::vector<float>> out;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
        Machine machine(seed);
        std::vector<BufferRef> buffers;
        for (int i = 0; i < 4; ++i) {
            buffers.push_back(machine.upload(std::vector<float>(kN, static_cast<float>(10 + i))));
        }
        std::vector<std::unique_ptr<Recording>> recordings;
        build(machine, recordings, buffers);
        machine.device().hold(true);
        for (const auto& recording : recordings) recording->submit();
        machine.device().hold(false);
        for (const auto& recording : recordings) {
            EXPECT_EQ(recording->wait(), stream::Status::completed);
        }
        out.insert(machine.download<float>(buffers[3]));
    }
    return out;
}

// a to b, b to c, c to d, with `between` called in the two gaps.
std::set<std::vector<float>> chain(bool concurrent,
                                   const std::function<void(Recording&, const BufferRef&)>& between,
                                   uint64_t seeds = 100, bool tracked = true) {
    return outcomes(
        [&](Machine& machine, auto& recordings, auto& buffers) {
            auto& r = *recordings.emplace_back(std::make_unique<Recording>(machine, concurrent));
            if (!tracked) {
                for (BufferRef& buffer : buffers) {
                    auto untracked = std::make_shared<stream::Buffer>(*buffer);
                    untracked->tracked = false;
                    buffer = untracked;
                }
            }
            copy(r, buffers[0], buffers[1]);
            between(r, buffers[1]);
            copy(r, buffers[1], buffers[2]);
            between(r, buffers[2]);
            copy(r, buffers[2], buffers[3]);
        },
        seeds);
}

const std::set<std::vector<float>> kInOrder = {std::vector<float>(kN, 10.0f)};

TEST(Schedule, BroadBarriersOrderEverySeed) {
    EXPECT_EQ(chain(true, [](Recording& r, const BufferRef&) { r.barrier(); }), kInOrder);
}

TEST(Schedule, SerialEncoderOrdersWithoutBarriers) {
    EXPECT_EQ(chain(false, [](Recording&, const BufferRef&) {}), kInOrder);
}

TEST(Schedule, WithoutBarriersSomeSeedDiffers) {
    EXPECT_GT(chain(
                  true, [](Recording&, const BufferRef&) {}, 20)
                  .size(),
              1u);
}

TEST(Schedule, ResourceBarrierOrdersTheNamedBufferOnly) {
    EXPECT_EQ(chain(true, [](Recording& r, const BufferRef& b) { r.barrier({b}); }), kInOrder);
    // The wrong name is as good as none.
    const auto wrong = chain(
        true,
        [](Recording& r, const BufferRef&) {
            const auto other = r.machine().upload(std::vector<float>(1));
            r.barrier({other});
        },
        20);
    EXPECT_GT(wrong.size(), 1u);
}

TEST(Schedule, EncoderBoundaryOrdersTrackedBuffersOnly) {
    const auto next_encoder = [](Recording& r, const BufferRef&) { r.encoder(true); };
    EXPECT_EQ(chain(true, next_encoder), kInOrder);
    EXPECT_GT(chain(true, next_encoder, 20, false).size(), 1u);
}

TEST(Schedule, BarriersDieWithTheirEncoder) {
    const auto barrier_then_encoder = [](Recording& r, const BufferRef&) {
        r.barrier();
        r.encoder(true);
    };
    EXPECT_GT(chain(true, barrier_then_encoder, 20, false).size(), 1u);
}

TEST(Schedule, CommandBuffersOverlapWhereNothingOrdersThem) {
    const auto two = [](bool tracked) {
        return outcomes(
            [&](Machine& machine, auto& recordings, auto& buffers) {
                auto shared = std::make_shared<stream::Buffer>(*buffers[1]);
                shared->tracked = tracked;
                auto& first = *recordings.emplace_back(std::make_unique<Recording>(machine));
                copy(first, buffers[0], shared);
                auto& second = *recordings.emplace_back(std::make_unique<Recording>(machine));
                copy(second, shared, buffers[3]);
            },
            tracked ? 100 : 20);
    };
    EXPECT_EQ(two(true), kInOrder);
    EXPECT_GT(two(false).size(), 1u);
}

TEST(Schedule, ManyCommandBuffersInFlight) {
    // Each completes, and is forgotten, while the others go on.
    const auto results = outcomes(
        [](Machine& machine, auto& recordings, auto& buffers) {
            for (int i = 0; i < 12; ++i) {
                auto& r = *recordings.emplace_back(std::make_unique<Recording>(machine));
                copy(r, buffers[0], buffers[1]);
                r.barrier();
                copy(r, buffers[1], buffers[2]);
                r.encoder(false);
                copy(r, buffers[2], buffers[3]);
            }
        },
        20);
    EXPECT_EQ(results, kInOrder);
}

TEST(Schedule, AFailureLeavesTheOthersAlone) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        Machine machine(seed);
        const auto x = machine.upload(std::vector<float>(kN, 1.0f));
        const auto y = machine.upload(std::vector<float>(kN));
        Recording good(machine);
        Recording bad(machine);
        Recording after(machine);
        copy(good, x, y);
        copy(bad, x, machine.upload(std::vector<float>(kN)));
        bad.dispatch_groups("mutant_divergent_barrier", VectorArgs{100, 0}, {3, 1, 1}, 256,
                            {reads(1, x), writes(2, machine.blank(4))});
        copy(after, x, machine.upload(std::vector<float>(kN)));
        machine.device().hold(true);
        good.submit();
        bad.submit();
        after.submit();
        machine.device().hold(false);
        EXPECT_EQ(good.wait(), stream::Status::completed);
        EXPECT_EQ(bad.wait(), stream::Status::error);
        EXPECT_EQ(after.wait(), stream::Status::completed);
        EXPECT_EQ(machine.download<float>(y), std::vector<float>(kN, 1.0f));
    }
}

TEST(Schedule, WriteAfterReadIsOrderedToo) {
    // b is read by the first and overwritten by the second command buffer.
    const auto results = outcomes(
        [](Machine& machine, auto& recordings, auto& buffers) {
            auto& first = *recordings.emplace_back(std::make_unique<Recording>(machine));
            copy(first, buffers[1], buffers[3]);
            auto& second = *recordings.emplace_back(std::make_unique<Recording>(machine));
            copy(second, buffers[0], buffers[1]);
        },
        100);
    EXPECT_EQ(results, (std::set<std::vector<float>>{std::vector<float>(kN, 11.0f)}));
}

TEST(Schedule, SameSeedSameResult) {
    for (const uint64_t seed : {3u, 4u, 5u, 6u}) {
        std::set<std::vector<float>> results;
        for (int repeat = 0; repeat < 3; ++repeat) {
            Machine machine(seed);
            std::vector<BufferRef> b;
            for (int i = 0; i < 4; ++i) {
                b.push_back(machine.upload(std::vector<float>(kN, static_cast<float>(i))));
            }
            Recording r(machine);
            copy(r, b[0], b[1]);
            copy(r, b[1], b[2]);
            copy(r, b[2], b[3]);
            r.run();
            results.insert(machine.download<float>(b[3]));
        }
        EXPECT_EQ(results.size(), 1u) << "seed " << seed;
    }
}

TEST(Errors, UnboundArgumentFailsTheCommandBuffer) {
    Machine machine;
    Recording r(machine);
    const auto x = machine.upload(std::vector<float>(64));
    r.dispatch("rms_norm_f32", NormArgs{64, 0, 1e-5f}, 1, 1, {reads(1, x)});
    r.submit();
    EXPECT_EQ(r.wait(), stream::Status::error);
    EXPECT_EQ(r.commands()->error, stream::ErrorCode::invalid_resource);
    EXPECT_EQ(r.commands()->error_message,
              "dispatch of rms_norm_f32 leaves a buffer argument unbound");
}

TEST(Errors, WrittenGuardBytesAreFound) {
    Machine machine;
    Recording r(machine);
    const auto x = machine.upload(std::vector<float>(64));
    const auto y = machine.blank(63 * 4);
    r.dispatch("rms_norm_f32", NormArgs{64, 0, 1e-5f}, 1, 1, {reads(1, x), writes(2, y)});
    r.submit();
    EXPECT_EQ(r.wait(), stream::Status::error);
    EXPECT_EQ(r.commands()->error, stream::ErrorCode::page_fault);
    // And the device goes on.
    Recording again(machine);
    const auto z = machine.blank(64 * 4);
    again.dispatch("rms_norm_f32", NormArgs{64, 0, 1e-5f}, 1, 1, {reads(1, x), writes(2, z)});
    again.run();
}

TEST(Errors, EmptyCommandBufferCompletes) {
    Machine machine;
    Recording r(machine);
    r.run();
}

TEST(Times, OfEachClosureWhereAsked) {
    for (const bool asked : {false, true}) {
        Machine machine;
        Recording r(machine);
        const auto x = machine.upload(std::vector<float>(kN));
        const auto y = machine.upload(std::vector<float>(kN));
        copy(r, x, y);
        r.barrier();
        copy(r, y, x);
        r.commands()->time_labels = asked;
        r.run();
        const auto& times = r.commands()->label_times;
        ASSERT_EQ(times.size(), asked ? 2u : 0u);
        if (!asked) continue;
        EXPECT_LE(r.commands()->start_seconds, times[0].start_seconds);
        EXPECT_LE(times[0].start_seconds, times[0].end_seconds);
        EXPECT_LE(times[0].end_seconds, times[1].start_seconds);
        EXPECT_LE(times[1].end_seconds, r.commands()->end_seconds);
    }
}

TEST(Catalogue, LaunchShapesAndKernelsAgree) {
    struct ArgsSize {
        std::string_view name;
        size_t bytes;
    };
    constexpr ArgsSize kArgs[] = {
        {"EmbedArgs", sizeof(EmbedArgs)},       {"NormArgs", sizeof(NormArgs)},
        {"DualNormArgs", sizeof(DualNormArgs)}, {"HeadNormArgs", sizeof(HeadNormArgs)},
        {"RopeArgs", sizeof(RopeArgs)},         {"KvStoreArgs", sizeof(KvStoreArgs)},
        {"SwaStageArgs", sizeof(SwaStageArgs)}, {"AttendArgs", sizeof(AttendArgs)},
        {"QkStoreArgs", sizeof(QkStoreArgs)},   {"MatVecArgs", sizeof(MatVecArgs)},
        {"VectorArgs", sizeof(VectorArgs)},     {"SoftcapArgs", sizeof(SoftcapArgs)},
        {"ProbeArgs", sizeof(ProbeArgs)}};
    for (const kernels::KernelShape& shape : kernels::kKernelShapes) {
        const emulator::KernelEntry* entry = emulator::find_kernel(shape.name, false);
        ASSERT_NE(entry, nullptr) << shape.name;
        EXPECT_EQ(entry->buffers, shape.buffers) << shape.name;
        EXPECT_EQ(shape.threads % 32, 0u) << shape.name;
        const auto* args = std::find_if(std::begin(kArgs), std::end(kArgs),
                                        [&](const ArgsSize& a) { return a.name == shape.args; });
        ASSERT_NE(args, std::end(kArgs)) << shape.args;
        EXPECT_EQ(entry->args_bytes, args->bytes) << shape.name;
        EXPECT_EQ(emulator::find_kernel(shape.name, true) != nullptr, emulator::tracer_available());
    }
    for (const emulator::KernelEntry* entry : emulator::all_kernels(false)) {
        // The tests' own: mutants, and the forms of the cuda device.
        const std::string_view name = entry->name;
        if (name.starts_with("mutant_") || name.starts_with("cuda_")) continue;
        EXPECT_NE(kernels::find_kernel_shape(entry->name), nullptr) << entry->name;
    }
    EXPECT_EQ(Machine().device().kernel("no_such_kernel", ""), nullptr);
}

}  // namespace
}  // namespace muser::emulator_test
