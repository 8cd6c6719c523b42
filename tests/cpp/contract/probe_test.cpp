#include "contract/probe.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "contract/fma.h"
#include "contract/half.h"
#include "contract/int_to_float.h"
#include "contract/pointwise.h"
#include "errors.h"
#include "metal/kernels/probe_ops.h"
#include "reference.h"

namespace muser::contract {
namespace {

std::vector<uint32_t> host_results() {
    std::vector<uint32_t> results(probe_rows().size());
    run_probe_on_host(results.data());
    return results;
}

std::string failure(const std::vector<uint32_t>& results) {
    try {
        check_probe(results.data(), results.size(), "test");
    } catch (const ProbeError& error) {
        std::string text = error.what();
        for (const auto& [key, value] : error.facts()) text += " " + key + "=" + value;
        return text;
    }
    return "";
}

TEST(Probe, ThisMachinePasses) { EXPECT_EQ(failure(host_results()), ""); }

TEST(Probe, InputHoldsTheRowsWords) {
    const auto rows = probe_rows();
    const auto input = probe_input();
    ASSERT_EQ(input.size(), 4 * rows.size());
    std::set<std::string> names;
    std::set<uint32_t> ops;
    for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(input[4 * i], rows[i].op);
        EXPECT_EQ(input[4 * i + 1], rows[i].a);
        EXPECT_EQ(input[4 * i + 2], rows[i].b);
        EXPECT_EQ(input[4 * i + 3], rows[i].c);
        EXPECT_TRUE(names.insert(rows[i].name).second) << rows[i].name;
        ops.insert(rows[i].op);
    }
    EXPECT_EQ(ops.size(), MUSER_PROBE_LESS + 1u) << "an operation without a row";
    EXPECT_EQ(muser_probe_op(MUSER_PROBE_LESS + 1u, 0, 0, 0), 0xdeadbeefu);
}

TEST(Probe, AWrongBitIsNamed) {
    for (const size_t at : {size_t{0}, size_t{20}, probe_rows().size() - 1}) {
        std::vector<uint32_t> results = host_results();
        results[at] ^= 1;
        const std::string text = failure(results);
        EXPECT_NE(text.find("row=" + std::to_string(at)), std::string::npos) << text;
        EXPECT_NE(text.find(std::string("name=") + probe_rows()[at].name), std::string::npos);
        EXPECT_NE(text.find("device=test"), std::string::npos);
        EXPECT_NE(text.find("found=0x"), std::string::npos);
    }
    std::vector<uint32_t> brief = host_results();
    brief.pop_back();
    EXPECT_NE(failure(brief), "");
}

// Devices with one wrong habit each. Every one must be found, and by the rows meant for it.
float wrong_op(const std::string& habit, const ProbeRow& row) {
    const float a = reference::from_bits(row.a);
    const float b = reference::from_bits(row.b);
    const float c = reference::from_bits(row.c);
    if (habit == "contracts") return row.op == MUSER_PROBE_MUL_ADD ? fma(a, b, c) : fma(-a, b, c);
    if (habit == "rounds the product of an fma") return add(mul(a, b), c);
    if (habit == "fma through f64") {
        return static_cast<float>(static_cast<double>(a) * b + static_cast<double>(c));
    }
    if (habit == "divides by a reciprocal") return mul(a, div(1.0f, b));
    if (habit == "square root by reciprocal") return mul(a, div(1.0f, sqrt(a)));
    if (habit == "rounds half away") return std::round(a);
    if (habit == "short wide rule") {
        return fma(static_cast<float>(static_cast<int32_t>(row.a)), 256.0f,
                   static_cast<float>(static_cast<int32_t>(row.b)));
    }
    if (habit == "reassociates") return add(a, add(b, c));
    if (habit == "flushes f16 subnormals") {
        return (row.a & 0x7c00) == 0 ? 0.0f : f16_to_f32(static_cast<uint16_t>(row.a));
    }
    return std::exp(a);  // libm's
}

TEST(Probe, WrongHabitsAreFound) {
    const std::pair<const char*, std::set<uint32_t>> habits[] = {
        {"contracts", {MUSER_PROBE_MUL_ADD, MUSER_PROBE_MUL_SUB}},
        {"rounds the product of an fma", {MUSER_PROBE_FMA}},
        {"fma through f64", {MUSER_PROBE_FMA}},
        {"divides by a reciprocal", {MUSER_PROBE_DIV}},
        {"square root by reciprocal", {MUSER_PROBE_SQRT}},
        {"rounds half away", {MUSER_PROBE_RINT}},
        {"short wide rule", {MUSER_PROBE_WIDE_INT}},
        {"reassociates", {MUSER_PROBE_SUM3}},
        {"flushes f16 subnormals", {MUSER_PROBE_FROM_HALF}},
        {"uses libm's exp", {MUSER_PROBE_EXP}},
    };
    for (const auto& [habit, ops] : habits) {
        std::vector<uint32_t> results = host_results();
        for (size_t i = 0; i < results.size(); ++i) {
            const ProbeRow& row = probe_rows()[i];
            if (ops.contains(row.op)) results[i] = muser_probe_bits(wrong_op(habit, row));
        }
        EXPECT_NE(failure(results), "") << habit;
    }
}

// Without the flush mode, results differ, and in the rows named for it.
TEST(Probe, AHostThatDoesNotFlushIsFound) {
    std::vector<uint32_t> results;
    for (const ProbeRow& row : probe_rows()) {
        volatile uint32_t a = row.a;  // not computed by the compiler
        results.push_back(muser_probe_op(row.op, a, row.b, row.c));
    }
    EXPECT_NE(failure(results).find("flush"), std::string::npos);
}

// The stored bits against the contract's own functions: two formulations of one definition.
TEST(Probe, StoredBitsAreTheContracts) {
    for (const ProbeRow& row : probe_rows()) {
        const float a = reference::from_bits(row.a);
        const float b = reference::from_bits(row.b);
        const float c = reference::from_bits(row.c);
        float found = 0;
        switch (row.op) {
            case MUSER_PROBE_MUL:
                found = mul(a, b);
                break;
            case MUSER_PROBE_ADD:
                found = add(a, b);
                break;
            case MUSER_PROBE_MUL_ADD:
                found = add(mul(a, b), c);
                break;
            case MUSER_PROBE_MUL_SUB:
                found = sub(c, mul(a, b));
                break;
            case MUSER_PROBE_FMA:
                found = fma(a, b, c);
                break;
            case MUSER_PROBE_FMA_NEG:
                found = fma(a, b, -mul(c, b));
                break;
            case MUSER_PROBE_DIV:
                found = div(a, b);
                break;
            case MUSER_PROBE_SQRT:
                found = sqrt(a);
                break;
            case MUSER_PROBE_RINT:
                found = rint(a);
                break;
            case MUSER_PROBE_INT:
                found = int_to_float(int64_t{static_cast<int32_t>(row.a)});
                break;
            case MUSER_PROBE_WIDE_INT:
                found = int_to_float(256 * int64_t{static_cast<int32_t>(row.a)} +
                                     static_cast<int32_t>(row.b));
                break;
            case MUSER_PROBE_FROM_HALF:
                found = f16_to_f32(static_cast<uint16_t>(row.a));
                break;
            case MUSER_PROBE_EXP:
                found = exp(a);
                break;
            case MUSER_PROBE_TANH:
                found = tanh(a);
                break;
            case MUSER_PROBE_SIGMOID:
                found = sigmoid(a);
                break;
            case MUSER_PROBE_SILU_MUL:
                found = silu_mul(a, b);
                break;
            case MUSER_PROBE_SUM3:
                found = add(add(a, b), c);
                break;
            case MUSER_PROBE_TO_HALF:
                EXPECT_EQ(f32_to_f16(a), row.expected);
                continue;
            case MUSER_PROBE_LESS:
                EXPECT_EQ(flush(a) < flush(b), row.expected);
                continue;
            default:
                EXPECT_EQ(static_cast<uint32_t>(static_cast<int32_t>(rint(a))), row.expected);
                continue;
        }
        EXPECT_EQ(muser_probe_bits(found), row.expected) << row.name;
    }
}

}  // namespace
}  // namespace muser::contract
