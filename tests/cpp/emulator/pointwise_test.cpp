// Gate, SwiGLU, copies, head and probe kernels against the contract.
#include "contract/pointwise.h"

#include "contract/probe.h"
#include "kernel_run.h"

namespace muser::emulator_test {
namespace {

uint32_t blocks(size_t n) { return n % 256 == 0 ? static_cast<uint32_t>(n / 256) : 0; }
uint64_t form_bytes(size_t n) { return blocks(n) == 0 ? 4 : MUSER_BLOCK_FORM_BYTES(n); }
Use form_written(uint32_t argument, const BufferRef& form, size_t n) {
    return blocks(n) == 0 ? unused(argument, form) : writes(argument, form);
}

void expect_gate(size_t n, Values kind, std::mt19937& random) {
    const auto gate = random_floats(n, random, kind);
    const auto x = random_floats(n, random);
    std::vector<float> expected(n);
    contract::sigmoid_gate(x.data(), gate.data(), n, expected.data());
    expect_kernels([&](Recording& r) {
        const auto state = r.machine().upload(x);
        const auto form = r.machine().blank(form_bytes(n));
        r.dispatch(
            "gate_b16", VectorArgs{static_cast<uint32_t>(n), blocks(n)}, n, 1,
            {reads(1, r.machine().upload(gate)), updates(2, state), form_written(3, form, n)});
        r.expect(state, expected);
        if (blocks(n) != 0) r.expect_bits(form, block_form(expected));
    });
}

TEST(Pointwise, Gate) {
    std::mt19937 random(20);
    for (const size_t n : {1u, 100u, 256u, 513u, 768u, 1280u}) {
        for (const Values kind : kAllValues) expect_gate(n, kind, random);
    }
}

void expect_silu_mul(size_t n, Values kind, std::mt19937& random) {
    const auto gate = random_floats(n, random, kind);
    const auto up = random_floats(n, random);
    std::vector<float> expected(n);
    contract::silu_mul(gate.data(), up.data(), n, expected.data());
    expect_kernels([&](Recording& r) {
        const auto y = r.machine().blank(n * 4);
        const auto form = r.machine().blank(form_bytes(n));
        r.dispatch("silu_mul_b16", VectorArgs{static_cast<uint32_t>(n), blocks(n)}, n, 1,
                   {reads(1, r.machine().upload(gate)), reads(2, r.machine().upload(up)),
                    writes(3, y), form_written(4, form, n)});
        r.expect(y, expected);
        if (blocks(n) != 0) r.expect_bits(form, block_form(expected));
    });
}

TEST(Pointwise, SwiGlu) {
    std::mt19937 random(21);
    for (const size_t n : {3u, 300u, 512u, 768u}) {
        for (const Values kind : kAllValues) expect_silu_mul(n, kind, random);
    }
}

TEST(Pointwise, CopyOfTheLastRow) {
    std::mt19937 random(22);
    for (const size_t n : {256u, 1500u, 2304u}) {
        const auto x = random_floats(n, random);
        const auto form = blocks(n) == 0 ? std::vector<uint8_t>(4) : block_form(x);
        expect_kernels([&](Recording& r) {
            const auto y = r.machine().blank(n * 4);
            const auto y_form = r.machine().blank(form_bytes(n));
            const auto in = r.machine().upload(form);
            r.dispatch(
                "copy_row_b16", VectorArgs{static_cast<uint32_t>(n), blocks(n)}, n, 1,
                {reads(1, r.machine().upload(x)), blocks(n) == 0 ? unused(2, in) : reads(2, in),
                 writes(3, y), form_written(4, y_form, n)});
            r.expect(y, x);
            if (blocks(n) != 0) r.expect_bits(y_form, form);
        });
    }
}

void expect_softcap(uint32_t n, Values kind, std::mt19937& random) {
    const auto dots = random_floats(n, random, kind);
    const uint32_t groups = (n + MUSER_HEAD_GROUP - 1) / MUSER_HEAD_GROUP;
    std::vector<float> expected = dots;
    std::vector<uint32_t> flags(groups);
    for (uint32_t g = 0; g < groups; ++g) {
        const size_t begin = MUSER_HEAD_GROUP * size_t{g};
        const size_t count = std::min<size_t>(MUSER_HEAD_GROUP, n - begin);
        flags[g] = contract::softcap(&expected[begin], count, 0.196f, 20.0f) ? 1 : 0;
    }
    expect_kernels([&](Recording& r) {
        const auto logits = r.machine().upload(dots);
        const auto out = r.machine().blank(groups * 4);
        r.dispatch("softcap_f32", SoftcapArgs{n, 0.196f, 20.0f}, n, 1,
                   {updates(1, logits), writes(2, out)});
        r.expect(logits, expected);
        r.expect_bits(out, flags);
    });
}

TEST(Head, SoftcapAndItsFlags) {
    std::mt19937 random(23);
    for (const uint32_t n : {5u, 1024u, 2500u}) {
        for (const Values kind : kAllValues) expect_softcap(n, kind, random);
    }
}

void expect_greedy_choice(const std::vector<float>& logits) {
    const auto n = static_cast<uint32_t>(logits.size());
    const uint32_t groups = (n + MUSER_HEAD_GROUP - 1) / MUSER_HEAD_GROUP;
    expect_kernels([&](Recording& r) {
        const auto best = r.machine().blank(groups * 8);
        const auto token = r.machine().blank(4);
        r.dispatch("argmax_groups_f32", VectorArgs{n, 0}, n, 1,
                   {reads(1, r.machine().upload(logits)), writes(2, best)});
        r.barrier();
        r.dispatch("argmax_final_f32", VectorArgs{groups, 0}, 1, 1,
                   {reads(1, best), writes(2, token)});
        r.expect_bits(token, std::vector<uint32_t>{contract::argmax(logits.data(), n)});
    });
}

TEST(Head, GreedyChoice) {
    std::mt19937 random(24);
    const float lowest = -std::numeric_limits<float>::infinity();
    for (const uint32_t n : {1u, 700u, 1024u, 5000u}) {
        expect_greedy_choice(random_floats(n, random));
        expect_greedy_choice(random_floats(n, random, Values::not_finite));
        // Ties, between threads and between threadgroups; both zeros.
        std::vector<float> ties(n, -1.0f);
        ties[n / 2] = ties[n - 1] = 2.0f;
        expect_greedy_choice(ties);
        for (float& x : ties) x = random() % 2 == 0 ? 0.0f : -0.0f;
        expect_greedy_choice(ties);
        expect_greedy_choice(std::vector<float>(n, lowest));
        expect_greedy_choice(std::vector<float>(n, std::numeric_limits<float>::quiet_NaN()));
    }
}

TEST(Pointwise, SweepRandomShapes) {
    std::mt19937 random(25);
    const auto size = [&] {
        const auto n = static_cast<uint32_t>(1 + random() % 3000);
        return random() % 2 == 0 ? n : (n + 255) / 256 * 256;
    };
    for (int i = 0; i < 200; ++i) {
        const Values kind = kAllValues[random() % std::size(kAllValues)];
        SCOPED_TRACE("case " + std::to_string(i));
        expect_gate(size(), kind, random);
        expect_silu_mul(size(), kind, random);
        expect_softcap(size(), kind, random);
        expect_greedy_choice(random_floats(size(), random, kind));
        if (::testing::Test::HasFailure()) return;
    }
}

TEST(Probe, EveryRow) {
    const auto input = contract::probe_input();
    const std::vector<uint32_t> rows(input.begin(), input.end());
    const auto count = static_cast<uint32_t>(rows.size() / 4);
    expect_kernels([&](Recording& r) {
        const auto results = r.machine().blank(count * 4);
        std::vector<uint32_t> expected;
        for (const contract::ProbeRow& row : contract::probe_rows()) {
            expected.push_back(row.expected);
        }
        r.dispatch("probe_u32", ProbeArgs{count}, count, 1,
                   {reads(1, r.machine().upload(rows)), writes(2, results)});
        r.expect_bits(results, expected);
    });
}

}  // namespace
}  // namespace muser::emulator_test
