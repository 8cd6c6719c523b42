// The text of every kind of finding, and of every reason why a pair is not ordered, word for word
// as tests/cpp/audit/findings.txt has it. People and programs read these lines: a change is a
// decision.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "builder.h"

namespace muser::audit {
namespace {

struct Case {
    const char* name;
    std::function<void(Builder&)> build;
};

// One write and one read of 32 bytes in layers 3 and 4, with `between` in between.
Case two(const char* name, const std::function<void(Builder&, uint32_t)>& between,
         bool tracked = true) {
    return {name, [between, tracked](Builder& b) {
                const uint32_t x = b.buffer("x", 64, tracked);
                b.begin().dispatch("blk.3.make", "make_f32", {write(x, 0, 32)}, 3);
                between(b, x);
                b.dispatch("blk.4.use", "use_f32", {read(x, 16, 32)}, 4).commit();
            }};
}

const std::vector<Case>& cases() {
    static const std::vector<Case> kCases = {
        two("RAW in one epoch", [](Builder&, uint32_t) {}),
        two("RAW past a barrier on something else",
            [](Builder& b, uint32_t) { b.barrier({b.buffer("other", 4)}); }),
        two(
            "RAW between encoders, untracked", [](Builder& b, uint32_t) { b.barrier().encoder(); },
            false),
        two(
            "RAW between command buffers, untracked",
            [](Builder& b, uint32_t) { b.commit().begin(); }, false),
        two(
            "RAW between command buffers, a wait for a later one",
            [](Builder& b, uint32_t) { b.commit().begin().commit().wait(1).begin(); }, false),
        {"RAW between two objects over the same bytes",
         [](Builder& b) {
             const uint32_t x = b.buffer("x", 64);
             const uint32_t view = b.view("view of x", x, 0, 64);
             b.begin().dispatch("make", "make_f32", {write(x, 0, 64)}).encoder();
             b.dispatch("use", "use_f32", {read(view, 0, 64)}).commit();
         }},
        {"WAR",
         [](Builder& b) {
             const uint32_t g = b.buffer("g", 4096);
             const uint32_t gb = b.buffer("gb", 256, true, false);
             b.begin().dispatch("bias_gradient", "reduce_f32",
                                {read(g, 0, 4096, "g"), write(gb, 0, 256, "gb")});
             b.dispatch("scale", "scale_in_place_f32", {in_place(g, 0, 4096, "x")}).commit();
         }},
        {"WAW",
         [](Builder& b) {
             const uint32_t x = b.buffer("x", 64);
             b.begin().dispatch("a", "a_f32", {write(x, 0, 32)});
             b.dispatch("b", "b_f32", {write(x, 31, 32)}).commit();
         }},
        {"HOST RAW without a wait",
         [](Builder& b) {
             const uint32_t x = b.buffer("logits", 64);
             b.begin().dispatch("softcap", "softcap_f32", {in_place(x, 0, 64)}).commit();
             b.host(read(x, 0, 64), "logits");
         }},
        {"HOST RAW after a wait for a later command buffer",
         [](Builder& b) {
             const uint32_t x = b.buffer("logits", 64);
             const uint32_t y = b.buffer("other", 64);
             b.begin().dispatch("softcap", "softcap_f32", {in_place(x, 0, 64)}).commit();
             b.begin().dispatch("next", "next_f32", {write(y, 0, 64)}).commit().wait(1);
             b.host(read(x, 0, 64), "logits");
         }},
        {"HOST RAW after a wait that failed",
         [](Builder& b) {
             const uint32_t x = b.buffer("logits", 64);
             b.begin().dispatch("softcap", "softcap_f32", {in_place(x, 0, 64)}).commit();
             b.wait(0, false).host(read(x, 0, 64), "logits");
         }},
        {"HOST WAR",
         [](Builder& b) {
             const uint32_t steps = b.buffer("steps", 512);
             b.begin().dispatch("embedding", "embed_f32", {read(steps, 0, 256, "step")}).commit();
             b.host(write(steps, 0, 256), "step values");
         }},
        {"UNINITIALISED",
         [](Builder& b) {
             const uint32_t x = b.buffer("partials", 64, true, false);
             b.begin().dispatch("blk.0.combine", "combine_f32", {read(x, 0, 48)}, 0).commit();
         }},
        {"ORDER, another closure",
         [](Builder& b) {
             const uint32_t x = b.buffer("x", 64);
             b.begin().dispatch("rope", "rope_f32", {write(x, 0, 64)}).barrier();
             b.dispatch("norm", "norm_f32", {write(x, 0, 64)}).barrier();
             b.dispatch("attend", "attend_f32", {read(x, 0, 64, "q")}).commit();
             b.trace.dispatches.back().producers.push_back({x, 0, 64, "rope", kNone});
         }},
        {"ORDER, nobody wrote",
         [](Builder& b) {
             const uint32_t x = b.buffer("x", 64);
             b.begin().dispatch("attend", "attend_f32", {read(x, 0, 64, "q")}).commit();
             b.trace.dispatches.back().producers.push_back({x, 0, 64, "rope", kNone});
         }},
        {"UNDECLARED and UNTOUCHED",
         [](Builder& b) {
             const uint32_t x = b.buffer("x", 64);
             const uint32_t y = b.buffer("y", 64);
             b.begin().dispatch("norm", "norm_f32", {read(x, 0, 64, "x"), write(y, 0, 64, "y")});
             b.commit();
             Dispatch& dispatch = b.trace.dispatches[0];
             dispatch.observed = true;
             dispatch.touched = {read(x, 0, 64), write(y, 0, 60), read(y, 8, 4)};
         }},
        {"LIFETIME, released in flight",
         [](Builder& b) {
             const uint32_t x = b.buffer("scratch", 64);
             b.begin().dispatch("use", "use_f32", {read(x, 0, 64)}).commit().release(x);
             b.trace.command_buffers[0].retained = false;
         }},
        {"LIFETIME, handed on in flight",
         [](Builder& b) {
             const uint32_t x = b.buffer("scratch", 64);
             b.begin().dispatch("use", "use_f32", {read(x, 0, 64)}).commit().release(x, true);
         }},
        {"LIFETIME, released before",
         [](Builder& b) {
             const uint32_t x = b.buffer("scratch", 64);
             b.release(x).begin().dispatch("use", "use_f32", {read(x, 0, 64)}).commit();
         }},
        {"LIFETIME, used by the host after",
         [](Builder& b) {
             const uint32_t x = b.buffer("scratch", 64);
             b.begin().commit().wait(0).release(x).host(read(x, 0, 64), "scratch");
         }},
        {"REDUNDANT",
         [](Builder& b) {
             const uint32_t x = b.buffer("x", 64);
             const uint32_t y = b.buffer("y", 64);
             b.begin().dispatch("a", "a_f32", {write(x, 0, 64)}).barrier();
             b.dispatch("b", "b_f32", {write(y, 0, 64)}).barrier({x});
             b.dispatch("c", "c_f32", {read(x, 0, 64)}).barrier();
             b.dispatch("d", "d_f32", {}).commit();
         }},
    };
    return kCases;
}

TEST(Snapshot, TextOfEveryFinding) {
    std::string text;
    std::set<Kind> kinds;
    for (const Case& one : cases()) {
        Builder b;
        one.build(b);
        auto findings = b.findings();
        const auto redundant = Checker(b.trace).redundant_findings();
        if (std::string(one.name) == "REDUNDANT") findings = redundant;
        EXPECT_FALSE(findings.empty()) << one.name;
        text += "== " + std::string(one.name) + "\n";
        for (const Finding& finding : findings) {
            text += finding.text();
            kinds.insert(finding.kind);
        }
    }
    std::ifstream file(MUSER_FINDINGS_FILE);
    std::ostringstream expected;
    expected << file.rdbuf();
    EXPECT_EQ(text, expected.str());
    for (const Kind kind :
         {Kind::raw, Kind::war, Kind::waw, Kind::undeclared, Kind::untouched, Kind::uninitialised,
          Kind::order, Kind::redundant, Kind::host, Kind::lifetime}) {
        EXPECT_EQ(kinds.count(kind), 1u) << name(kind);
    }
}

}  // namespace
}  // namespace muser::audit
