// The tracer: it sees every form of access, reports every mutant with both lanes and the line, and
// says nothing about repaired ones.
#include <fstream>

#include "kernel_run.h"

namespace muser::emulator_test {
namespace {

using emulator::Finding;
using emulator::FindingKind;
using emulator::TraceReport;

TraceReport traced(Recording& recording) {
    return emulator::trace(recording.machine().device(), recording.commands());
}

const Finding* find(const TraceReport& report, FindingKind kind) {
    for (const Finding& finding : report.findings) {
        if (finding.kind == kind) return &finding;
    }
    return nullptr;
}

// The line of mutants.metal that ends in the marker, or follows one that is nothing else.
uint32_t marked(const std::string& marker) {
    std::ifstream file(MUSER_MUTANTS_FILE);
    std::string line;
    for (uint32_t number = 1; std::getline(file, line); ++number) {
        const size_t at = line.find("// MARK " + marker);
        if (at == std::string::npos) continue;
        return line.find_first_not_of(' ') == at ? number + 1 : number;
    }
    ADD_FAILURE() << "no marker " << marker;
    return 0;
}

// Expects one finding of the kind, of the kernel, at the marked lines.
void expect_finding(Recording& recording, FindingKind kind, int32_t argument,
                    const std::string& array, const std::vector<std::string>& markers) {
    const TraceReport report = traced(recording);
    const Finding* finding = find(report, kind);
    ASSERT_NE(finding, nullptr) << text_of(report);
    EXPECT_EQ(finding->kernel, recording.commands()->labels[0]);
    EXPECT_EQ(finding->argument, argument) << finding->text();
    EXPECT_EQ(finding->array, array) << finding->text();
    ASSERT_EQ(finding->lanes.size(), markers.size()) << finding->text();
    std::vector<uint32_t> lines;
    std::vector<uint32_t> expected;
    for (size_t i = 0; i < markers.size(); ++i) {
        lines.push_back(finding->lanes[i].line);
        expected.push_back(markers[i].empty() ? 0 : marked(markers[i]));
    }
    std::sort(lines.begin(), lines.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(lines, expected) << finding->text();
    if (finding->lanes.size() == 2) {
        const bool same_group =
            std::equal(std::begin(finding->lanes[0].group), std::end(finding->lanes[0].group),
                       std::begin(finding->lanes[1].group));
        EXPECT_TRUE(!same_group || finding->lanes[0].thread != finding->lanes[1].thread);
    }
}

TEST(Mutant, NoBarrier) {
    Machine m;
    Recording r(m);
    const auto logits = m.upload(std::vector<float>(1500, 1.0f));
    r.dispatch_groups("mutant_no_barrier", SoftcapArgs{1500, 0.2f, 20.0f}, {2, 1, 1}, 256,
                      {updates(1, logits), writes(2, m.blank(8))});
    expect_finding(r, FindingKind::race, -1, "found", {"no_barrier write", "no_barrier read"});
}

TEST(Mutant, BarrierForTheWrongMemory) {
    Machine m;
    Recording r(m);
    const std::vector<float> x(512, 1.0f);
    r.dispatch_groups("mutant_wrong_barrier", DualNormArgs{512, 2, 1e-8f, 1e-5f}, {1, 1, 1}, 1024,
                      {reads(1, m.upload(x)), reads(2, m.upload(x)), updates(3, m.upload(x)),
                       reads(4, m.upload(x)), writes(5, m.blank(2048)),
                       writes(6, m.blank(MUSER_BLOCK_FORM_BYTES(512)))});
    expect_finding(r, FindingKind::race, 3, "", {"wrong_barrier write", "wrong_barrier read"});
}

TEST(Mutant, OverlappingLanes) {
    Machine m;
    Recording r(m);
    const auto step = m.upload(std::vector<uint8_t>(MUSER_STEP_BYTES));
    r.dispatch_groups("mutant_overlap", RopeArgs{2, 64}, {1, 1, 1}, 256,
                      {step_use("rope_f32", step, {.head_dim = 64}),
                       updates(2, m.upload(std::vector<float>(128, 1.0f)))});
    const TraceReport report = traced(r);
    const Finding* race = find(report, FindingKind::race);
    ASSERT_NE(race, nullptr);
    EXPECT_EQ(race->argument, 2);
    ASSERT_EQ(race->lanes.size(), 2u);
    EXPECT_NE(race->lanes[0].thread, race->lanes[1].thread);
    EXPECT_TRUE(race->lanes[0].line == marked("overlap write") ||
                race->lanes[1].line == marked("overlap write"))
        << race->text();
}

TEST(Mutant, OverlappingThreadgroups) {
    Machine m;
    Recording r(m);
    r.dispatch_groups(
        "mutant_groups_overlap", VectorArgs{400, 0}, {2, 1, 1}, 256,
        {reads(1, m.upload(std::vector<float>(400, 1.0f))), writes(2, m.blank(1600))});
    expect_finding(r, FindingKind::race, 2, "", {"groups_overlap write", "groups_overlap write"});
}

TEST(Mutant, ReadPastTheEnd) {
    Machine m;
    Recording r(m);
    r.dispatch_groups("mutant_past_the_end", HeadNormArgs{2, 64, 1e-5f}, {1, 1, 1}, 128,
                      {reads(1, m.upload(std::vector<float>(64, 1.0f))),
                       updates(2, m.upload(std::vector<float>(128, 1.0f)))});
    expect_finding(r, FindingKind::out_of_bounds, 1, "", {"past_the_end read"});
}

TEST(Mutant, ReadFarOutsideIsStopped) {
    Machine m;
    Recording r(m);
    r.dispatch_groups("mutant_far_outside", VectorArgs{32, 0}, {1, 1, 1}, 32,
                      {reads(1, m.upload(std::vector<float>(32))), writes(2, m.blank(128))});
    expect_finding(r, FindingKind::out_of_bounds, -1, "", {"far_outside read"});
}

TEST(Mutant, ArrayOverrun) {
    Machine m;
    Recording r(m);
    r.dispatch_groups("mutant_array_overrun", VectorArgs{32, 0}, {1, 1, 1}, 32,
                      {reads(1, m.upload(std::vector<float>(32))), writes(2, m.blank(128))});
    expect_finding(r, FindingKind::out_of_bounds, -1, "values", {"array_overrun write"});
}

TEST(Mutant, ArrayReadBeforeItIsWritten) {
    Machine m;
    Recording r(m);
    r.dispatch_groups("mutant_array_unwritten", VectorArgs{32, 0}, {1, 1, 1}, 32,
                      {reads(1, m.upload(std::vector<float>(32))), writes(2, m.blank(128))});
    expect_finding(r, FindingKind::uninitialised, -1, "values", {"array_unwritten read"});
}

TEST(Mutant, DivergentBarrier) {
    Machine m;
    Recording r(m);
    r.dispatch_groups("mutant_divergent_barrier", VectorArgs{100, 0}, {1, 1, 1}, 256,
                      {reads(1, m.upload(std::vector<float>(256))), writes(2, m.blank(4))});
    // The other lane has returned: it has no line.
    expect_finding(r, FindingKind::divergent_barrier, -1, "", {"divergent_barrier barrier", ""});
}

TEST(Mutant, TwoBarriersForOne) {
    Machine m;
    Recording r(m);
    r.dispatch_groups("mutant_two_barriers", VectorArgs{100, 0}, {1, 1, 1}, 256,
                      {reads(1, m.upload(std::vector<float>(256))), writes(2, m.blank(258 * 4))});
    expect_finding(r, FindingKind::divergent_barrier, -1, "",
                   {"two_barriers one", "two_barriers other"});
}

TEST(Mutant, DivergentShuffle) {
    Machine m;
    Recording r(m);
    r.dispatch_groups("mutant_divergent_simd", VectorArgs{16, 0}, {1, 1, 1}, 32,
                      {reads(1, m.upload(std::vector<float>(32))), writes(2, m.blank(128))});
    expect_finding(r, FindingKind::divergent_simd, -1, "", {"divergent_simd shuffle", ""});
}

TEST(Mutant, MisalignedLoad) {
    Machine m;
    Recording r(m);
    r.dispatch_groups("mutant_misaligned", VectorArgs{5, 0}, {1, 1, 1}, 32,
                      {reads(1, m.upload(std::vector<float>(5))), writes(2, m.blank(4))});
    expect_finding(r, FindingKind::misaligned, 1, "", {"misaligned read"});
}

TEST(Mutant, TooMuchThreadgroupMemory) {
    Machine m;
    Recording r(m);
    r.dispatch_groups("mutant_too_much_memory", VectorArgs{32, 0}, {1, 1, 1}, 32,
                      {reads(1, m.upload(std::vector<float>(32))), writes(2, m.blank(128))});
    expect_finding(r, FindingKind::out_of_bounds, -1, "threadgroup memory", {});
    Recording plain(m);
    plain.dispatch_groups("mutant_too_much_memory", VectorArgs{32, 0}, {1, 1, 1}, 32,
                          {reads(1, m.upload(std::vector<float>(32))), writes(2, m.blank(128))});
    plain.submit();
    EXPECT_EQ(plain.wait(), stream::Status::error);
    EXPECT_EQ(plain.commands()->error_message,
              "mutant_too_much_memory: a threadgroup declares more than 32768 bytes of threadgroup "
              "memory");
}

TEST(Mutant, PlainRunReportsDivergenceAsAnError) {
    Machine m;
    Recording r(m);
    r.dispatch_groups("mutant_divergent_barrier", VectorArgs{100, 0}, {1, 1, 1}, 256,
                      {reads(1, m.upload(std::vector<float>(256))), writes(2, m.blank(4))});
    r.submit();
    EXPECT_EQ(r.wait(), stream::Status::error);
    EXPECT_EQ(r.commands()->error_message,
              "mutant_divergent_barrier: threads 0 and 100 of a threadgroup disagree about a "
              "barrier");
}

// A norm whose declarations and memory are as given; silent when nothing is wrong.
TraceReport norm_with(const std::function<void(Machine&, std::vector<Use>&)>& change) {
    Machine m;
    Recording r(m);
    std::vector<Use> uses = {reads(1, m.upload(std::vector<float>(64, 1.0f))),
                             writes(2, m.blank(256))};
    change(m, uses);
    r.dispatch("rms_norm_f32", NormArgs{64, 0, 1e-5f}, 1, 1, uses);
    return traced(r);
}

TEST(Declarations, TheRepairedTwinIsSilent) {
    const TraceReport report = norm_with([](Machine&, std::vector<Use>&) {});
    EXPECT_EQ(text_of(report), "");
    ASSERT_EQ(report.dispatches.size(), 1u);
    ASSERT_EQ(report.dispatches[0].arguments.size(), 2u);
    const std::vector<emulator::ByteRange> whole = {{0, 256}};
    EXPECT_EQ(report.dispatches[0].arguments[0].read, whole);
    EXPECT_TRUE(report.dispatches[0].arguments[0].written.empty());
    EXPECT_TRUE(report.dispatches[0].arguments[1].read.empty());
    EXPECT_EQ(report.dispatches[0].arguments[1].written, whole);
}

TEST(Declarations, OneElementTooSmall) {
    for (const uint32_t argument : {1u, 2u}) {
        const TraceReport report = norm_with(
            [&](Machine&, std::vector<Use>& uses) { uses[argument - 1].accesses[0].length -= 4; });
        const Finding* finding = find(report, FindingKind::undeclared);
        ASSERT_NE(finding, nullptr);
        EXPECT_EQ(finding->argument, static_cast<int32_t>(argument));
        EXPECT_EQ(finding->bytes, (emulator::ByteRange{252, 256}));
        EXPECT_EQ(report.findings.size(), 1u) << text_of(report);
    }
}

TEST(Declarations, OutputLeftUnwritten) {
    const TraceReport report =
        norm_with([](Machine& m, std::vector<Use>& uses) { uses[1] = writes(2, m.blank(260)); });
    const Finding* finding = find(report, FindingKind::untouched);
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->argument, 2);
    EXPECT_EQ(finding->bytes, (emulator::ByteRange{256, 260}));
    EXPECT_EQ(finding->text(),
              "rms_norm_f32, argument 2: bytes declared as written were not touched.\n"
              "kind=UNTOUCHED\nkernel=rms_norm_f32\nclosure=rms_norm_f32\ndispatch=0\n"
              "argument=2\nbytes=256..260\nlane=0,0,0/0 write");
}

TEST(Declarations, UndeclaredRead) {
    const TraceReport report =
        norm_with([](Machine&, std::vector<Use>& uses) { uses[0].accesses.clear(); });
    const Finding* finding = find(report, FindingKind::undeclared);
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->argument, 1);
    EXPECT_FALSE(finding->lanes[0].write);
}

TEST(Declarations, WriteDeclaredAsRead) {
    const TraceReport report = norm_with(
        [](Machine&, std::vector<Use>& uses) { uses[1].accesses[0].access = Access::read; });
    EXPECT_NE(find(report, FindingKind::undeclared), nullptr);
    EXPECT_NE(find(report, FindingKind::untouched), nullptr);
}

TEST(Declarations, ReadBeforeAnyWrite) {
    const TraceReport report = norm_with([](Machine& m, std::vector<Use>& uses) {
        const auto x = m.device().allocate(256, device::MemoryUse::device);
        const std::vector<float> most(60, 1.0f);
        m.device().write(*x, 0, most.data(), 240);
        uses[0] = reads(1, x);
    });
    const Finding* finding = find(report, FindingKind::uninitialised);
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->argument, 1);
    EXPECT_EQ(finding->bytes, (emulator::ByteRange{240, 244}));
}

TEST(Declarations, RowsOfTheStepSlot) {
    // Row 2 of three is named by word 1 of the slot; the kernel takes row 1.
    Machine m;
    Recording r(m);
    std::vector<uint8_t> slot(MUSER_STEP_BYTES);
    const uint32_t token = 1;
    const uint32_t position = 2;
    std::memcpy(&slot[offsetof(StepValues, token)], &token, 4);
    std::memcpy(&slot[offsetof(StepValues, position)], &position, 4);
    const auto table = m.upload(std::vector<float>(3 * 32, 1.0f));
    const stream::DeclaredAccess wrong{
        2,
        Access::read,
        0,
        table->length,
        {true, 1, offsetof(StepValues, position) / 4, RowRule::kConstant, 0, 128}};
    r.dispatch(
        "embed_f32", EmbedArgs{32, 3, 128}, 1, 1,
        {step_use("embed_f32", m.upload(slot)), {2, table, {wrong}}, writes(3, m.blank(128))});
    const TraceReport report = traced(r);
    const Finding* undeclared = find(report, FindingKind::undeclared);
    ASSERT_NE(undeclared, nullptr);
    EXPECT_EQ(undeclared->bytes, (emulator::ByteRange{128, 132}));
    const Finding* untouched = find(report, FindingKind::untouched);
    ASSERT_NE(untouched, nullptr);
    EXPECT_EQ(untouched->bytes, (emulator::ByteRange{256, 384}));
}

enum class Does { copy, update, store };  // `from` to `to`; `to` to itself; a value to `to`
struct Form {
    const char* name;
    uint64_t offset, bytes;
    Does does = Does::copy;
};
constexpr Form kForms[] = {{"copy1", 16, 1},
                           {"copy2", 16, 2},
                           {"copy4", 16, 4},
                           {"copy8", 16, 8},
                           {"copy16", 16, 16},
                           {"unaligned2", 17, 2},
                           {"unaligned4", 17, 4},
                           {"unaligned8", 17, 8},
                           {"unaligned16", 17, 16},
                           {"volatile1", 16, 1},
                           {"volatile2", 16, 2},
                           {"volatile4", 16, 4},
                           {"volatile8", 16, 8},
                           {"aggregate36", 16, 36},
                           {"zero36", 16, 36, Does::store},
                           {"update4", 16, 4, Does::update},
                           {"update1", 16, 1, Does::update},
                           {"or8", 16, 8, Does::update},
                           {"unaligned_update4", 17, 4, Does::update}};

TEST(Tracer, SeesEveryLoadAndStoreForm) {
    for (const Form& form : kForms) {
        Machine m;
        Recording r(m);
        const auto from = m.upload(std::vector<uint8_t>(64, 3));
        const auto to = m.upload(std::vector<uint8_t>(64, 5));
        r.dispatch_groups("mutant_form_" + std::string(form.name), VectorArgs{1, 0}, {1, 1, 1}, 32,
                          {unused(1, from), unused(2, to)});
        const TraceReport report = traced(r);
        const std::vector<emulator::ByteRange> touched = {{form.offset, form.offset + form.bytes}};
        ASSERT_EQ(report.dispatches.size(), 1u);
        const auto& arguments = report.dispatches[0].arguments;
        const std::vector<emulator::ByteRange> none;
        EXPECT_EQ(arguments[0].read, form.does == Does::copy ? touched : none) << form.name;
        EXPECT_EQ(arguments[1].read, form.does == Does::update ? touched : none) << form.name;
        EXPECT_EQ(arguments[0].written, none) << form.name;
        EXPECT_EQ(arguments[1].written, touched) << form.name;
    }
}

}  // namespace
}  // namespace muser::emulator_test
