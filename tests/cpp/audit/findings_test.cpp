// Each kind of finding once, in its exact words, beside the repaired twin that must be silent.
#include <gtest/gtest.h>

#include "builder.h"
#include "errors.h"

namespace muser::audit {
namespace {

// Two kernels: a reduction still reads `g` while the next one writes it in place. Nothing but the
// write-after-read is wrong, which trackers of earlier outputs alone do not see.
Builder write_after_read(bool repaired) {
    Builder b;
    const uint32_t g = b.buffer("g", 4096);
    const uint32_t gb = b.buffer("gb", 256, true, false);
    b.begin().dispatch("bias_gradient", "reduce_f32",
                       {read(g, 0, 4096, "g"), write(gb, 0, 256, "gb")});
    if (repaired) b.barrier({g});
    b.dispatch("scale", "scale_in_place_f32", {in_place(g, 0, 4096, "x")}).commit();
    return b;
}

TEST(Findings, WriteAfterReadNamesBothArguments) {
    const auto found = write_after_read(false).findings();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(
        found[0].text(),
        "WAR: scale (scale_in_place_f32, argument x) writes bytes 0..4096 of 'g', which "
        "bias_gradient (reduce_f32, argument g) may still have to read.\n"
        "kind=WAR\n"
        "first.closure=bias_gradient\n"
        "first.kernel=reduce_f32\n"
        "first.argument=g\n"
        "first.buffer=g\n"
        "first.access=read\n"
        "first.bytes=0..4096\n"
        "first.dispatch=0\n"
        "first.commands=0\n"
        "first.encoder=0\n"
        "second.closure=scale\n"
        "second.kernel=scale_in_place_f32\n"
        "second.argument=x\n"
        "second.buffer=g\n"
        "second.access=write\n"
        "second.bytes=0..4096\n"
        "second.dispatch=1\n"
        "second.commands=0\n"
        "second.encoder=0\n"
        "ordering=both are in one epoch of a concurrent encoder: no barrier lies between them\n"
        "repair=a barrier on 'g' before scale (scale_in_place_f32, argument x)\n");
    EXPECT_EQ(write_after_read(true).kinds(), "");
}

TEST(Findings, ReadAfterWrite) {
    for (const bool repaired : {false, true}) {
        Builder b;
        const uint32_t x = b.buffer("x", 64);
        b.begin().dispatch("make", "make", {write(x, 0, 32)}, 3);
        if (repaired) b.barrier();
        b.dispatch("use", "use", {read(x, 16, 32)}, 4).commit();
        if (repaired) {
            EXPECT_EQ(b.kinds(), "");
            continue;
        }
        const auto found = b.findings();
        ASSERT_EQ(found.size(), 1u);
        EXPECT_EQ(
            found[0].sentence,
            "RAW: use (use, argument x) reads bytes 16..32 of 'x', which make (make, argument "
            "y) may still have to write.");
        EXPECT_EQ(found[0].places[0].layer, 3);
        EXPECT_EQ(found[0].places[1].layer, 4);
    }
}

TEST(Findings, WriteAfterWriteAndDisjointRanges) {
    for (const bool repaired : {false, true}) {
        Builder b;
        const uint32_t x = b.buffer("x", 64);
        b.begin()
            .dispatch("a", "a", {write(x, 0, 32)})
            .dispatch("b", "b", {write(x, repaired ? 32 : 31, 32)})
            .commit();
        EXPECT_EQ(b.kinds(), repaired ? "" : "WAW");
    }
}

TEST(Findings, ResourceBarrierOrdersOnlyWhatItNames) {
    for (const bool repaired : {false, true}) {
        Builder b;
        const uint32_t x = b.buffer("x", 64);
        const uint32_t y = b.buffer("y", 64);
        b.begin()
            .dispatch("make", "make", {write(x, 0, 64, "x"), write(y, 0, 64, "y")})
            .barrier(repaired ? std::vector<uint32_t>{x, y} : std::vector<uint32_t>{y})
            .dispatch("use", "use", {read(x, 0, 64, "x"), read(y, 0, 64, "y")})
            .commit();
        if (repaired) {
            EXPECT_EQ(b.kinds(), "");
            continue;
        }
        const auto found = b.findings();
        ASSERT_EQ(found.size(), 1u);
        EXPECT_EQ(found[0].ordering, "the barriers between the two name 'y', not 'x'");
        EXPECT_EQ(found[0].repair, "a barrier on 'x' before use (use, argument x)");
        EXPECT_EQ(found[0].lines().back(),
                  (std::pair<std::string, std::string>{"model", "strict"}));
    }
}

TEST(Findings, EncoderBoundaryNeedsTracking) {
    for (const bool tracked : {false, true}) {
        Builder b;
        const uint32_t x = b.buffer("x", 64, tracked);
        b.begin()
            .dispatch("make", "make", {write(x, 0, 64)})
            .barrier()  // dies with its encoder
            .encoder()
            .dispatch("use", "use", {read(x, 0, 64)})
            .commit();
        EXPECT_EQ(b.kinds(), tracked ? "REDUNDANT" : "RAW REDUNDANT");
        if (!tracked) {
            EXPECT_EQ(b.findings()[0].ordering,
                      "encoder 0 has ended, and its barriers with it; 'x' is not tracked");
            EXPECT_EQ(b.findings()[0].repair, "hazard tracking of 'x'");
        }
    }
}

TEST(Findings, CommandBuffersOverlap) {
    enum Repair { none, tracking, waiting, later_wait };
    for (const Repair repair : {none, tracking, waiting, later_wait}) {
        Builder b;
        const uint32_t x = b.buffer("x", 64, repair == tracking);
        b.begin().dispatch("make", "make", {write(x, 0, 64)}).commit();
        if (repair == waiting) b.wait(0);
        if (repair == later_wait) {
            // Another command buffer's end says nothing of this one's.
            b.begin().commit().wait(1);
        }
        b.begin().dispatch("use", "use", {read(x, 0, 64)}).commit();
        EXPECT_EQ(b.kinds(), repair == tracking || repair == waiting ? "" : "RAW") << repair;
        if (repair == none) {
            EXPECT_EQ(b.findings()[0].ordering,
                      "command buffers 0 and 1 start in commit order and may overlap; 'x' is not "
                      "tracked");
            EXPECT_EQ(b.findings()[0].repair,
                      "hazard tracking of 'x', or a wait for command buffer 0 before command "
                      "buffer 1 is committed");
        }
    }
}

TEST(Findings, TwoObjectsOverTheSameBytes) {
    for (const bool repaired : {false, true}) {
        Builder b;
        const uint32_t x = b.buffer("x", 64);
        const uint32_t view = repaired ? x : b.view("view", x, 0, 64);
        b.begin()
            .dispatch("make", "make", {write(x, 0, 64)})
            .encoder()
            .dispatch("use", "use", {read(view, 0, 64)})
            .commit();
        EXPECT_EQ(b.kinds(), repaired ? "" : "RAW");
        if (!repaired) {
            EXPECT_EQ(b.findings()[0].repair, "one tracked buffer object for both accesses");
        }
    }
}

TEST(Findings, HostReadsAfterItsOwnWait) {
    enum Case { none, failed, other, right };
    for (const Case wait : {none, failed, other, right}) {
        Builder b;
        const uint32_t x = b.buffer("logits", 64);
        const uint32_t y = b.buffer("other", 64);
        b.begin().dispatch("softcap", "softcap", {in_place(x, 0, 64)}).commit();
        b.begin().dispatch("next", "next", {write(y, 0, 64)}).commit();
        if (wait == failed) b.wait(0, false);
        if (wait == other) b.wait(1);
        if (wait == right) b.wait(0);
        b.host(read(x, 0, 64), "logits");
        if (wait == right) {
            EXPECT_EQ(b.kinds(), "");
            continue;
        }
        const auto found = b.findings();
        ASSERT_EQ(found.size(), 1u);
        EXPECT_EQ(found[0].sentence,
                  "HOST RAW: host: logits reads bytes 0..64 of 'logits', which softcap (softcap, "
                  "argument x) may still have to write.");
        EXPECT_EQ(found[0].repair, "a completed wait for command buffer 0 before the host reads");
        EXPECT_EQ(found[0].ordering,
                  wait == other    ? "the host has not waited for command buffer 0; it waited for "
                                     "command buffer 1, from which nothing follows for an earlier one"
                  : wait == failed ? "the wait for command buffer 0 ended without its completion"
                                   : "the host has not waited for command buffer 0");
    }
}

TEST(Findings, HostWritesWhatIsStillRead) {
    for (const bool slots : {false, true}) {
        Builder b;
        const uint32_t steps = b.buffer("steps", 512, true, false);
        b.host(write(steps, 0, 256), "step values")
            .begin()
            .dispatch("embedding", "embed", {read(steps, 0, 256, "step")})
            .commit()
            .host(write(steps, slots ? 256 : 0, 256), "step values")
            .begin()
            .dispatch("embedding", "embed", {read(steps, slots ? 256 : 0, 256, "step")})
            .commit();
        EXPECT_EQ(b.kinds(), slots ? "" : "HOST");
        if (!slots) {
            EXPECT_EQ(b.findings()[0].pair, "WAR");
        }
    }
}

TEST(Findings, Uninitialised) {
    for (const bool filled : {false, true}) {
        Builder b;
        const uint32_t x = b.buffer("partials", 64, true, filled);
        b.begin().dispatch("combine", "combine", {read(x, 0, 48, "partials")}).commit();
        EXPECT_EQ(b.kinds(), filled ? "" : "UNINITIALISED");
        if (!filled) {
            EXPECT_EQ(b.findings()[0].text(),
                      "UNINITIALISED: combine (combine, argument partials) reads bytes 0..48 of "
                      "'partials', which nothing has written before.\n"
                      "kind=UNINITIALISED\nclosure=combine\nkernel=combine\nargument=partials\n"
                      "buffer=partials\naccess=read\nbytes=0..48\ndispatch=0\ncommands=0\n"
                      "encoder=0\n");
        }
    }
}

TEST(Findings, Order) {
    for (const bool right : {false, true}) {
        Builder b;
        const uint32_t x = b.buffer("x", 64);
        const auto first = [&] { b.dispatch("norm", "norm", {write(x, 0, 64)}).barrier(); };
        const auto second = [&] { b.dispatch("rope", "rope", {write(x, 0, 64)}).barrier(); };
        b.begin();
        right ? first() : second();
        right ? second() : first();
        b.dispatch("attend", "attend", {read(x, 0, 64, "q")}).commit();
        b.trace.dispatches.back().producers.push_back({x, 0, 64, "rope", kNone});
        EXPECT_EQ(b.kinds(), right ? "" : "ORDER");
        if (!right) {
            EXPECT_EQ(b.findings()[0].sentence,
                      "ORDER: attend (attend, argument q) reads bytes 0..64 of 'x' as written by "
                      "norm; the graph states rope.");
        }
    }
}

TEST(Findings, DeclarationsAgainstWhatWasTouched) {
    Builder b;
    const uint32_t x = b.buffer("x", 64);
    const uint32_t y = b.buffer("y", 64);
    b.begin().dispatch("norm", "norm", {read(x, 0, 64, "x"), write(y, 0, 64, "y")}).commit();
    Dispatch& dispatch = b.trace.dispatches[0];
    dispatch.observed = true;
    dispatch.touched = {read(x, 0, 64, "x"), write(y, 0, 64, "y")};
    EXPECT_EQ(b.kinds(), "");
    dispatch.touched = {read(x, 0, 64, "x"), write(y, 0, 60, "y"), read(y, 8, 4, "y")};
    const auto found = b.findings();
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].sentence,
              "UNDECLARED: norm (norm) reads bytes 8..12 of 'y' without declaring it.");
    EXPECT_EQ(found[1].sentence,
              "UNTOUCHED: norm (norm) declares to write bytes 60..64 of 'y' and does not.");
}

TEST(Findings, Lifetime) {
    enum Case { in_flight, reused, kept, after_wait, too_late };
    for (const Case when : {in_flight, reused, kept, after_wait, too_late}) {
        Builder b;
        const uint32_t x = b.buffer("scratch", 64);
        if (when == too_late) b.release(x);
        b.begin().dispatch("use", "use", {read(x, 0, 64)}).commit();
        b.trace.command_buffers[0].retained = when != in_flight;
        if (when == after_wait) b.wait(0);
        if (when != too_late) b.release(x, when == reused || when == after_wait);
        EXPECT_EQ(b.kinds(), when == kept || when == after_wait ? "" : "LIFETIME") << when;
        if (when == in_flight) {
            EXPECT_EQ(b.findings()[0].sentence,
                      "LIFETIME: 'scratch' is released while command buffer 0 is in flight, which "
                      "uses it in use.");
        }
        if (when == reused) {
            EXPECT_EQ(b.findings()[0].sentence,
                      "LIFETIME: 'scratch' is handed on while command buffer 0 is in flight, which "
                      "uses it in use.");
        }
    }
}

TEST(Findings, Redundant) {
    Builder b;
    const uint32_t x = b.buffer("x", 64);
    b.begin()
        .dispatch("a", "a", {write(x, 0, 64)})
        .barrier()
        .dispatch("b", "b", {})
        .barrier()
        .dispatch("c", "c", {read(x, 0, 64)})
        .barrier()
        .dispatch("d", "d", {})
        .commit();
    const Checker checker(b.trace);
    EXPECT_EQ(checker.redundant(), (std::vector<uint32_t>{0, 1, 2}));
    EXPECT_EQ(checker.redundant_together(), (std::vector<uint32_t>{1, 2}));
    const auto found = checker.redundant_findings();
    EXPECT_EQ(found[0].sentence,
              "REDUNDANT: the broad barrier before b orders one conflicting pair, which another "
              "barrier orders too.");
    EXPECT_EQ(found[2].sentence,
              "REDUNDANT: the broad barrier before d orders no conflicting pair.");
    EXPECT_FALSE(checker.any());
}

TEST(Findings, SerialEncoderOrdersAll) {
    Builder b;
    const uint32_t x = b.buffer("x", 64);
    b.begin(false).dispatch("a", "a", {write(x, 0, 64)}).barrier();
    b.dispatch("b", "b", {in_place(x, 0, 64)}).commit();
    EXPECT_EQ(b.kinds(), "REDUNDANT");
}

TEST(Findings, UnsoundTracesAreRefused) {
    const auto refused = [](Builder b) { EXPECT_THROW(validate(b.trace), Error); };
    Builder never;
    never.begin();
    refused(never);
    Builder outside;
    const uint32_t x = outside.buffer("x", 64);
    outside.begin().dispatch("a", "a", {read(x, 60, 8)}).commit();
    refused(outside);
    Builder twice;
    twice.begin().commit().commit();
    refused(twice);
    Builder early;
    early.begin().wait(0).commit();
    refused(early);
}

}  // namespace
}  // namespace muser::audit
