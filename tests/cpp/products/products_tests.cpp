// Every kernel of every product table that this machine runs, bit by bit against the contract.
#include <algorithm>
#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "contract/mat_vec.h"
#include "contract/pointwise.h"
#include "device/cpu/products.h"
#include "products_support.h"

namespace muser::products_test {
namespace {

constexpr WeightType kQuantised[] = {WeightType::Q4_K, WeightType::Q5_K, WeightType::Q6_K,
                                     WeightType::Q8_0};
constexpr WeightType kFloats[] = {WeightType::F32, WeightType::F16, WeightType::BF16};

// One matrix (two for silu), its activations and what the contract says of them.
struct Case {
    WeightType type;
    size_t rows, cols, columns;
    std::vector<std::byte> gate, up;
    std::vector<contract::BlockForm> forms;
    std::vector<float> vectors;
    std::vector<float> expected;
};

Case make_case(WeightType type, size_t rows, size_t cols, size_t columns, Weights weights,
               Activations activations, Random& random) {
    Case c{type,
           rows,
           cols,
           columns,
           random_weights(type, rows, cols, weights, random),
           {},
           {},
           {},
           std::vector<float>(rows * columns)};
    const bool quantised = contract::weight_type_info(type).quantised;
    if (quantised) {
        c.forms = random_block_forms(cols, columns, activations, random);
    } else {
        c.vectors = random_vectors(cols, columns, random);
    }
    for (size_t i = 0; i < columns; ++i) {
        float* y = c.expected.data() + i * rows;
        if (quantised) {
            contract::mat_vec(type, c.gate.data(), rows, cols, c.forms.data() + i * (cols / 256),
                              y);
        } else {
            contract::mat_vec(type, c.gate.data(), rows, cols, c.vectors.data() + i * cols, y);
        }
    }
    return c;
}

MatVecArgs arguments_of(const Case& c, uint32_t blocks) {
    return {static_cast<uint32_t>(c.rows), static_cast<uint32_t>(c.cols),
            static_cast<uint32_t>(c.columns), blocks};
}

std::vector<std::byte> vectors_of(const Case& c) {
    if (!c.forms.empty()) return pack(c.forms, c.cols);
    std::vector<std::byte> bytes(c.vectors.size() * 4);
    std::memcpy(bytes.data(), c.vectors.data(), bytes.size());
    return bytes;
}

void check_mul_mv(const Case& c, Isa isa, const KernelImpl& kernel, const std::string& layout,
                  Random& random) {
    SCOPED_TRACE(std::string(kernel.name) + " on " + std::string(isa_name(isa)) + ", " +
                 std::to_string(c.rows) + " x " + std::to_string(c.cols) + ", columns " +
                 std::to_string(c.columns));
    Repacked weights = repack(isa, layout, c.type, c.rows, c.cols, c.gate);
    std::vector<std::byte> x = vectors_of(c);
    Guarded y(4 * c.expected.size());
    run(kernel, arguments_of(c, 0), {nullptr, weights.data(), x.data(), y.data()}, random);
    EXPECT_TRUE(y.guards_hold());
    size_t wrong = 0;
    for (size_t i = 0; i < c.expected.size(); ++i) {
        if (same(y.floats()[i], c.expected[i])) continue;
        if (++wrong == 1) {
            ADD_FAILURE() << "column " << i / c.rows << " row " << i % c.rows << ": found "
                          << y.floats()[i] << ", expected " << c.expected[i];
        }
    }
    EXPECT_EQ(wrong, 0u) << "of " << c.expected.size() << " results";
}

// Runs the case through every kernel for its type, on every instruction set.
void check_everywhere(const Case& c, Random& random) {
    for (Isa isa : device::cpu::isas()) {
        for (const KernelImpl& kernel : product_kernels(isa)) {
            const KernelName name = parse_name(kernel.name);
            if (name.type != c.type || name.silu) continue;
            check_mul_mv(c, isa, kernel, name.layout, random);
            if (testing::Test::HasFailure()) return;
        }
    }
}

TEST(Products, TablesAreComplete) {
    for (Isa isa : device::cpu::isas()) {
        std::set<std::string> expected;
        for (WeightType type : kQuantised) {
            std::string text = contract::weight_type_info(type).name;
            text[0] = 'q';
            const auto layout =
                device::cpu::product_layout(isa, {static_cast<uint32_t>(type), 4096, 4096});
            for (const std::string& suffix : {std::string(), layout.suffix}) {
                expected.insert("mul_mv_" + text + "_b16" + suffix);
                expected.insert("mul_mv_silu_" + text + "_b16" + suffix);
            }
        }
        expected.insert({"mul_mv_f32_f32", "mul_mv_f16_f32", "mul_mv_bf16_f32"});
        std::set<std::string> found;
        for (const KernelImpl& kernel : product_kernels(isa)) {
            EXPECT_TRUE(found.insert(kernel.name).second) << kernel.name << " twice";
        }
        EXPECT_EQ(found, expected) << isa_name(isa);
    }
}

TEST(Products, QuantisedRaggedShapes) {
    Random random(1);
    for (WeightType type : kQuantised) {
        for (size_t columns : {1, 2, 3, 5, 8, 17}) {
            for (int repeat = 0; repeat < 4; ++repeat) {
                const size_t rows = 1 + random() % 67;
                const size_t cols = 256 * (1 + random() % (columns > 3 ? 3 : 8));
                check_everywhere(make_case(type, rows, cols, columns, Weights::random,
                                           Activations::random, random),
                                 random);
                if (HasFailure()) return;
            }
        }
    }
}

TEST(Products, EveryRowCountUpToFourGroups) {
    Random random(2);
    for (WeightType type : kQuantised) {
        for (size_t rows = 1; rows <= 67; rows += (rows % 16 < 2 || rows % 16 > 14) ? 1 : 4) {
            check_everywhere(
                make_case(type, rows, 256, 1, Weights::random, Activations::random, random),
                random);
            if (HasFailure()) return;
        }
    }
}

// Enough rows for products that read many groups of them side by side, and what is left over.
TEST(Products, RowsOfManyGroups) {
    Random random(7);
    for (WeightType type : kQuantised) {
        for (size_t rows : {111, 112, 113, 127, 128, 129, 145, 160, 175, 255, 256, 257, 290}) {
            const Weights kind = rows % 2 == 0 ? Weights::random : Weights::extreme;
            const size_t cols = 256 * (1 + random() % 5), columns = 1 + random() % 3;
            check_everywhere(
                make_case(type, rows, cols, columns, kind, Activations::random, random), random);
            if (HasFailure()) return;
        }
        check_everywhere(
            make_case(type, 150, 256 * 131, 1, Weights::random, Activations::random, random),
            random);
    }
}

TEST(Products, ExtremeValuesStayExact) {
    Random random(3);
    for (WeightType type : kQuantised) {
        for (size_t columns : {1, 2, 5, 17, 33}) {
            for (int repeat = 0; repeat < 4; ++repeat) {
                check_everywhere(make_case(type, 16 + random() % 8, 512, columns, Weights::extreme,
                                           Activations::extreme, random),
                                 random);
                if (HasFailure()) return;
            }
        }
    }
}

TEST(Products, ZeroAndNanBlocks) {
    Random random(4);
    for (WeightType type : kQuantised) {
        for (size_t columns : {1, 3, 17}) {
            check_everywhere(
                make_case(type, 37, 512, columns, Weights::random, Activations::damaged, random),
                random);
            check_everywhere(
                make_case(type, 37, 512, columns, Weights::infinite, Activations::damaged, random),
                random);
            if (HasFailure()) return;
        }
    }
}

TEST(Products, FloatRowsOfAnyLength) {
    Random random(5);
    for (WeightType type : kFloats) {
        for (size_t cols : {1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 100, 256, 515, 1000}) {
            for (size_t columns : {1, 2, 3, 5, 8, 17}) {
                const size_t rows = 1 + random() % 23;
                const Weights kind = columns == 3 ? Weights::extreme : Weights::random;
                check_everywhere(
                    make_case(type, rows, cols, columns, kind, Activations::random, random),
                    random);
                if (HasFailure()) return;
            }
        }
        check_everywhere(
            make_case(type, 20, 300, 2, Weights::infinite, Activations::random, random), random);
    }
}

// A prompt chunk wider than any tile, and rows wider than any scratch.
TEST(Products, WideChunksAndLongRows) {
    Random random(6);
    for (WeightType type : kQuantised) {
        check_everywhere(
            make_case(type, 18, 256, 133, Weights::random, Activations::random, random), random);
        check_everywhere(
            make_case(type, 1100, 256, 9, Weights::random, Activations::random, random), random);
        check_everywhere(
            make_case(type, 17, 256 * 141, 2, Weights::random, Activations::random, random),
            random);
        if (HasFailure()) return;
    }
}

void check_silu(const Case& c, Isa isa, const KernelImpl& kernel, const std::string& layout,
                Random& random) {
    SCOPED_TRACE(std::string(kernel.name) + " on " + std::string(isa_name(isa)) + ", " +
                 std::to_string(c.rows) + " x " + std::to_string(c.cols) + ", columns " +
                 std::to_string(c.columns));
    const bool whole = c.rows % 256 == 0;
    const auto blocks = static_cast<uint32_t>(whole ? c.rows / 256 : 0);
    Repacked gate = repack(isa, layout, c.type, c.rows, c.cols, c.gate);
    Repacked up = repack(isa, layout, c.type, c.rows, c.cols, c.up);
    std::vector<std::byte> x = vectors_of(c);
    Guarded y(4 * c.expected.size());
    const size_t form_bytes = whole ? MUSER_BLOCK_FORM_STRIDE(c.rows) : 0;
    Guarded form(c.columns * form_bytes);
    run(kernel, arguments_of(c, blocks),
        {nullptr, gate.data(), up.data(), x.data(), y.data(), whole ? form.data() : nullptr},
        random);
    EXPECT_TRUE(y.guards_hold());
    EXPECT_TRUE(form.guards_hold());
    for (size_t i = 0; i < c.expected.size(); ++i) {
        ASSERT_TRUE(same(y.floats()[i], c.expected[i]))
            << "column " << i / c.rows << " row " << i % c.rows << ": found " << y.floats()[i]
            << ", expected " << c.expected[i];
    }
    if (!whole) return;
    std::vector<contract::BlockForm> expected(c.columns * blocks);
    for (size_t i = 0; i < c.columns; ++i) {
        contract::quantise(c.expected.data() + i * c.rows, c.rows, expected.data() + i * blocks);
    }
    const std::vector<std::byte> bytes = pack(expected, c.rows);
    const size_t exact = MUSER_BLOCK_SCALES(c.rows);
    for (size_t i = 0; i < c.columns; ++i) {
        EXPECT_EQ(std::memcmp(form.data() + i * form_bytes, bytes.data() + i * form_bytes, exact),
                  0)
            << "planes or sums of column " << i;
        for (size_t b = 0; b < blocks; ++b) {
            float s = 0;
            std::memcpy(&s, form.data() + i * form_bytes + exact + 4 * b, 4);
            EXPECT_TRUE(same(s, expected[i * blocks + b].s)) << "scale of block " << b;
        }
    }
}

TEST(Products, FusedSilu) {
    Random random(7);
    for (WeightType type : kQuantised) {
        for (size_t columns : {1, 3, 17}) {
            for (size_t rows : {40, 256, 512, 300}) {
                const Activations kind = rows == 512 ? Activations::damaged : Activations::random;
                Case c = make_case(type, rows, 256, columns, Weights::random, kind, random);
                c.up = random_weights(type, rows, 256, Weights::random, random);
                for (size_t i = 0; i < columns; ++i) {
                    std::vector<float> up(rows);
                    float* y = c.expected.data() + i * rows;
                    contract::mat_vec(type, c.up.data(), rows, 256, c.forms.data() + i, up.data());
                    contract::silu_mul(y, up.data(), rows, y);
                }
                for (Isa isa : device::cpu::isas()) {
                    for (const KernelImpl& kernel : product_kernels(isa)) {
                        const KernelName name = parse_name(kernel.name);
                        if (name.type != type || !name.silu) continue;
                        check_silu(c, isa, kernel, name.layout, random);
                        if (HasFailure()) return;
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace muser::products_test
