// Matrix-vector products and the embedding against the contract.
#include "contract/embedding.h"
#include "contract/mat_vec.h"
#include "contract/pointwise.h"

#include "kernel_run.h"
#include "random_weights.h"

namespace muser::emulator_test {
namespace {

std::vector<contract::BlockForm> blocks_of(const std::vector<float>& x) {
    std::vector<contract::BlockForm> out(x.size() / 256);
    contract::quantise(x.data(), x.size(), out.data());
    return out;
}

// What a product reads of its columns' block forms: all of each, but Q8_0 has no use for the sums.
Use form_use(uint32_t argument, BufferRef forms, size_t n, WeightType type, uint32_t columns = 1) {
    std::vector<stream::DeclaredAccess> accesses;
    for (uint32_t c = 0; c < columns; ++c) {
        const uint64_t at = c * MUSER_BLOCK_FORM_STRIDE(n);
        const bool sums = type != WeightType::Q8_0;
        accesses.push_back({argument,
                            Access::read,
                            at,
                            sums ? MUSER_BLOCK_FORM_BYTES(n) : MUSER_BLOCK_SUMS(n),
                            {}});
        if (!sums) {
            accesses.push_back({argument, Access::read, at + MUSER_BLOCK_SCALES(n), n / 64, {}});
        }
    }
    return {argument, std::move(forms), accesses};
}
// The forms that a kernel writes, with nothing between them.
Use forms_written(uint32_t argument, BufferRef forms, size_t n, uint32_t columns) {
    std::vector<stream::DeclaredAccess> accesses;
    for (uint32_t c = 0; c < columns; ++c) {
        accesses.push_back({argument,
                            Access::write,
                            c * MUSER_BLOCK_FORM_STRIDE(n),
                            MUSER_BLOCK_FORM_BYTES(n),
                            {}});
    }
    return {argument, std::move(forms), accesses};
}

void expect_product(const TypeName& type, const std::vector<uint8_t>& weight, uint32_t rows,
                    const std::vector<float>& x) {
    const auto cols = static_cast<uint32_t>(x.size());
    std::vector<float> y(rows);
    contract::mat_vec(type.type, weight.data(), rows, cols, blocks_of(x).data(), y.data());
    expect_kernels([&](Recording& r) {
        const auto out = r.machine().blank(rows * 4);
        r.dispatch(
            "mul_mv_" + std::string(type.name) + "_b16", MatVecArgs{rows, cols, 1, 0}, rows, 1,
            {reads(1, r.machine().upload(weight)),
             form_use(2, r.machine().upload(block_form(x)), cols, type.type), writes(3, out)});
        r.expect(out, y, type.name);
    });
}

TEST(Product, QuantisedRandomShapes) {
    std::mt19937 random(10);
    for (const TypeName& type : kQuantised) {
        for (const uint32_t rows : {1u, 2u, 7u, 16u, 17u, 45u}) {
            const uint32_t cols = 256 * (1 + random() % 4);
            expect_product(type, random_rows(type.type, rows, cols, random), rows,
                           random_floats(cols, random));
        }
    }
}

TEST(Product, QuantisedExtremes) {
    std::mt19937 random(11);
    for (const TypeName& type : kQuantised) {
        for (const Values kind : kAllValues) {
            expect_product(type, random_rows(type.type, 3, 768, random), 3,
                           random_floats(768, random, kind));
        }
        for (const uint8_t fill : {uint8_t{0x00}, uint8_t{0xff}, uint8_t{0x80}, uint8_t{0x7f}}) {
            const auto weight = extreme_rows(type.type, 2, 512, fill);
            for (const float x : {1.0f, -1.0f, 0.99998f}) {
                expect_product(type, weight, 2, std::vector<float>(512, x));
            }
        }
    }
}

TEST(Product, SeveralColumns) {
    std::mt19937 random(12);
    constexpr uint32_t kRows = 21, kCols = 512, kColumns = 3;
    for (const TypeName& type : kQuantised) {
        const auto weight = random_rows(type.type, kRows, kCols, random);
        std::vector<float> y(kRows * kColumns);
        std::vector<uint8_t> forms(MUSER_BLOCK_FORM_STRIDE(kCols) * kColumns);
        for (uint32_t c = 0; c < kColumns; ++c) {
            const auto x = random_floats(kCols, random);
            contract::mat_vec(type.type, weight.data(), kRows, kCols, blocks_of(x).data(),
                              &y[c * kRows]);
            const auto form = block_form(x);
            const uint64_t at = c * MUSER_BLOCK_FORM_STRIDE(kCols);
            std::copy(form.begin(), form.end(), forms.begin() + static_cast<ptrdiff_t>(at));
        }
        expect_kernels([&](Recording& r) {
            const auto out = r.machine().blank(y.size() * 4);
            r.dispatch("mul_mv_" + std::string(type.name) + "_b16",
                       MatVecArgs{kRows, kCols, kColumns, 0}, kRows, kColumns,
                       {reads(1, r.machine().upload(weight)),
                        form_use(2, r.machine().upload(forms), kCols, type.type, kColumns),
                        writes(3, out)});
            r.expect(out, y, type.name);
        });
    }
}

void expect_float_product(const TypeName& type, uint32_t rows, uint32_t cols, Values kind,
                          std::mt19937& random) {
    const auto weight = random_rows(type.type, rows, cols, random);
    const auto x = random_floats(2 * cols, random, kind);
    std::vector<float> y(2 * rows);
    for (uint32_t c = 0; c < 2; ++c) {
        contract::mat_vec(type.type, weight.data(), rows, cols, &x[c * cols], &y[c * rows]);
    }
    expect_kernels([&](Recording& r) {
        const auto out = r.machine().blank(y.size() * 4);
        r.dispatch("mul_mv_" + std::string(type.name) + "_f32", MatVecArgs{rows, cols, 2, 0}, rows,
                   2,
                   {reads(1, r.machine().upload(weight)), reads(2, r.machine().upload(x)),
                    writes(3, out)});
        r.expect(out, y, type.name);
    });
}

TEST(Product, FloatRandomShapes) {
    std::mt19937 random(13);
    for (const TypeName& type : kFloats) {
        for (const uint32_t rows : {1u, 5u, 8u, 19u}) {
            for (const uint32_t cols : {1u, 31u, 96u, 300u}) {
                expect_float_product(type, rows, cols,
                                     rows == 5 ? Values::sparse : Values::ordinary, random);
            }
        }
    }
}

void expect_gate_up(const TypeName& type, uint32_t rows, uint32_t cols, Values kind,
                    std::mt19937& random) {
    constexpr uint32_t kColumns = 2;
    const auto gate = random_rows(type.type, rows, cols, random);
    const auto up = random_rows(type.type, rows, cols, random);
    const auto x = random_floats(kColumns * cols, random, kind);
    std::vector<float> y(kColumns * rows);
    std::vector<uint8_t> x_forms(kColumns * MUSER_BLOCK_FORM_STRIDE(cols));
    std::vector<uint8_t> y_forms(kColumns * MUSER_BLOCK_FORM_STRIDE(rows));
    const bool blocked = rows % 256 == 0;
    for (uint32_t c = 0; c < kColumns; ++c) {
        const std::vector<float> column(&x[c * cols], &x[c * cols] + cols);
        const auto form = blocks_of(column);
        std::vector<float> g(rows);
        std::vector<float> made(rows);
        contract::mat_vec(type.type, gate.data(), rows, cols, form.data(), g.data());
        contract::mat_vec(type.type, up.data(), rows, cols, form.data(), made.data());
        contract::silu_mul(g.data(), made.data(), rows, made.data());
        std::copy(made.begin(), made.end(), &y[c * rows]);
        const auto in = block_form(column);
        std::copy(in.begin(), in.end(), &x_forms[c * MUSER_BLOCK_FORM_STRIDE(cols)]);
        if (!blocked) continue;
        const auto out = block_form(made);
        std::copy(out.begin(), out.end(), &y_forms[c * MUSER_BLOCK_FORM_STRIDE(rows)]);
    }
    expect_kernels([&](Recording& r) {
        const auto out = r.machine().blank(y.size() * 4);
        const auto out_forms =
            r.machine().upload(std::vector<uint8_t>(y_forms.size()));  // padding: 0
        r.dispatch(
            "mul_mv_silu_" + std::string(type.name) + "_b16",
            MatVecArgs{rows, cols, kColumns, blocked ? rows / 256 : 0}, rows, kColumns,
            {reads(1, r.machine().upload(gate)), reads(2, r.machine().upload(up)),
             form_use(3, r.machine().upload(x_forms), cols, type.type, kColumns), writes(4, out),
             blocked ? forms_written(5, out_forms, rows, kColumns) : unused(5, out_forms)});
        r.expect(out, y, type.name);
        if (blocked) r.expect_bits(out_forms, y_forms, type.name);
    });
}

TEST(Product, GateUpAndSwiGlu) {
    std::mt19937 random(14);
    for (const TypeName& type : kQuantised) {
        for (const uint32_t rows : {256u, 512u, 300u}) {
            expect_gate_up(type, rows, 512, Values::ordinary, random);
        }
    }
}

TEST(Product, SweepRandomShapes) {
    std::mt19937 random(16);
    const auto pick = [&](uint32_t from, uint32_t to) { return from + random() % (to - from + 1); };
    for (int i = 0; i < 200; ++i) {
        const Values kind = kAllValues[random() % std::size(kAllValues)];
        const TypeName& type = kQuantised[random() % std::size(kQuantised)];
        const TypeName& plain = kFloats[random() % std::size(kFloats)];
        const uint32_t rows = pick(1, 100);
        const uint32_t cols = 256 * pick(1, 8);
        const uint32_t silu_rows = random() % 2 == 0 ? pick(1, 700) : 256 * pick(1, 3);
        SCOPED_TRACE("case " + std::to_string(i) + ": " + type.name + " and " + plain.name + ", " +
                     std::to_string(rows) + " or " + std::to_string(silu_rows) + " by " +
                     std::to_string(cols));
        expect_product(type, random_rows(type.type, rows, cols, random), rows,
                       random_floats(cols, random, kind));
        expect_float_product(plain, rows, pick(1, 1000), kind, random);
        if (i % 4 == 0) expect_gate_up(type, silu_rows, cols, kind, random);
        if (::testing::Test::HasFailure()) return;
    }
}

TEST(Embedding, EveryTypeAndTheChainedToken) {
    std::mt19937 random(15);
    constexpr uint32_t kVocab = 5;
    const auto check = [&](const TypeName& type, uint32_t hidden) {
        const auto table = random_rows(type.type, kVocab, hidden, random);
        const uint64_t row_bytes = contract::row_bytes(type.type, hidden);
        for (const uint32_t chained : {0u, 1u}) {
            std::vector<uint8_t> slot(MUSER_STEP_BYTES);
            StepValues step{};
            step.token = 3;
            step.device_token = 1;
            step.chained = chained;
            std::memcpy(slot.data(), &step, sizeof step);
            const uint32_t id = chained != 0 ? 1 : 3;
            std::vector<float> expected(hidden);
            contract::dequantise_row(type.type, &table[row_bytes * id], hidden, expected.data());
            const uint32_t word = static_cast<uint32_t>(
                (chained != 0 ? offsetof(StepValues, device_token) : offsetof(StepValues, token)) /
                4);
            expect_kernels([&](Recording& r) {
                const std::string kernel = "embed_" + std::string(type.name);
                const auto out = r.machine().blank(hidden * 4);
                const stream::DeclaredAccess row{2,
                                                 Access::read,
                                                 0,
                                                 table.size(),
                                                 {true, 1, word, RowRule::kConstant, 0, row_bytes}};
                r.dispatch(kernel, EmbedArgs{hidden, kVocab, row_bytes}, 1, 1,
                           {step_use(kernel, r.machine().upload(slot)),
                            {2, r.machine().upload(table), {row}},
                            writes(3, out)});
                r.expect(out, expected, type.name);
            });
        }
    };
    for (const TypeName& type : kQuantised) check(type, 1280);
    for (const TypeName& type : kFloats) check(type, 1500);
}

}  // namespace
}  // namespace muser::emulator_test
