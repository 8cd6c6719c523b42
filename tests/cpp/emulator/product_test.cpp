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

// What a product reads of a block form: all of it, but Q8_0 has no use for the sums.
std::vector<stream::DeclaredAccess> form_reads(uint32_t argument, size_t n, WeightType type) {
    if (type != WeightType::Q8_0) {
        return {{argument, Access::read, 0, MUSER_BLOCK_FORM_BYTES(n), {}}};
    }
    return {{argument, Access::read, 0, MUSER_BLOCK_SUMS(n), {}},
            {argument, Access::read, MUSER_BLOCK_SCALES(n), n / 64, {}}};
}
Use form_use(uint32_t argument, BufferRef form, size_t n, WeightType type) {
    return {argument, std::move(form), form_reads(argument, n, type)};
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
        std::vector<stream::DeclaredAccess> accesses;
        for (uint32_t c = 0; c < kColumns; ++c) {
            const auto x = random_floats(kCols, random);
            contract::mat_vec(type.type, weight.data(), kRows, kCols, blocks_of(x).data(),
                              &y[c * kRows]);
            const auto form = block_form(x);
            const uint64_t at = c * MUSER_BLOCK_FORM_STRIDE(kCols);
            std::copy(form.begin(), form.end(), forms.begin() + static_cast<ptrdiff_t>(at));
            for (stream::DeclaredAccess access : form_reads(2, kCols, type.type)) {
                access.offset += at;
                accesses.push_back(access);
            }
        }
        expect_kernels([&](Recording& r) {
            const auto out = r.machine().blank(y.size() * 4);
            r.dispatch("mul_mv_" + std::string(type.name) + "_b16",
                       MatVecArgs{kRows, kCols, kColumns, 0}, kRows, kColumns,
                       {reads(1, r.machine().upload(weight)),
                        {2, r.machine().upload(forms), accesses},
                        writes(3, out)});
            r.expect(out, y, type.name);
        });
    }
}

TEST(Product, FloatRandomShapes) {
    std::mt19937 random(13);
    for (const TypeName& type : kFloats) {
        for (const uint32_t rows : {1u, 5u, 8u, 19u}) {
            for (const uint32_t cols : {1u, 31u, 96u, 300u}) {
                const auto weight = random_rows(type.type, rows, cols, random);
                const auto x =
                    random_floats(2 * cols, random, rows == 5 ? Values::sparse : Values::ordinary);
                std::vector<float> y(2 * rows);
                for (uint32_t c = 0; c < 2; ++c) {
                    contract::mat_vec(type.type, weight.data(), rows, cols, &x[c * cols],
                                      &y[c * rows]);
                }
                expect_kernels([&](Recording& r) {
                    const auto out = r.machine().blank(y.size() * 4);
                    r.dispatch("mul_mv_" + std::string(type.name) + "_f32",
                               MatVecArgs{rows, cols, 2, 0}, rows, 2,
                               {reads(1, r.machine().upload(weight)),
                                reads(2, r.machine().upload(x)), writes(3, out)});
                    r.expect(out, y, type.name);
                });
            }
        }
    }
}

TEST(Product, GateUpAndSwiGlu) {
    std::mt19937 random(14);
    for (const TypeName& type : kQuantised) {
        for (const uint32_t rows : {256u, 512u, 300u}) {
            constexpr uint32_t kCols = 512;
            const auto gate = random_rows(type.type, rows, kCols, random);
            const auto up = random_rows(type.type, rows, kCols, random);
            const auto x = random_floats(kCols, random);
            const auto form = blocks_of(x);
            std::vector<float> g(rows);
            std::vector<float> y(rows);
            contract::mat_vec(type.type, gate.data(), rows, kCols, form.data(), g.data());
            contract::mat_vec(type.type, up.data(), rows, kCols, form.data(), y.data());
            contract::silu_mul(g.data(), y.data(), rows, y.data());
            const bool blocked = rows % 256 == 0;
            expect_kernels([&](Recording& r) {
                const auto out = r.machine().blank(rows * 4);
                const auto y_form = r.machine().blank(MUSER_BLOCK_FORM_BYTES(rows));
                r.dispatch("mul_mv_silu_" + std::string(type.name) + "_b16",
                           MatVecArgs{rows, kCols, 1, blocked ? rows / 256 : 0}, rows, 1,
                           {reads(1, r.machine().upload(gate)), reads(2, r.machine().upload(up)),
                            form_use(3, r.machine().upload(block_form(x)), kCols, type.type),
                            writes(4, out), blocked ? writes(5, y_form) : unused(5, y_form)});
                r.expect(out, y, type.name);
                if (blocked) r.expect_bits(y_form, block_form(y), type.name);
            });
        }
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
