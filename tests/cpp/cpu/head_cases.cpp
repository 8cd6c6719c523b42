// Embedding, softcap, greedy choice and probe against the contract.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "contract/embedding.h"
#include "contract/f32.h"
#include "contract/half.h"
#include "contract/pointwise.h"
#include "contract/probe.h"
#include "support.h"

namespace muser::cpu_test {
namespace {

using contract::WeightType;
using device::cpu::KernelImpl;

// Any bytes are a valid row; f16 factors are kept finite unless damage is wanted.
std::vector<std::byte> table_rows(Random& random, WeightType type, size_t rows, size_t n,
                                  Data data) {
    const contract::WeightTypeInfo& info = contract::weight_type_info(type);
    std::vector<std::byte> table(rows * contract::row_bytes(type, n));
    for (std::byte& b : table) b = static_cast<std::byte>(random.next());
    if (data == Data::damaged) return table;
    const auto put_half = [&](size_t at) {
        const uint16_t half = halves(random, 1, data)[0];
        std::memcpy(&table[at], &half, 2);
    };
    for (size_t at = 0; at < table.size(); at += info.block_bytes) {
        if (type == WeightType::F32) {
            const float value = floats(random, 1, data)[0];
            std::memcpy(&table[at], &value, 4);
        } else if (type == WeightType::Q6_K) {
            put_half(at + offsetof(contract::BlockQ6_K, d));
        } else if (type != WeightType::BF16) {
            put_half(at);
            if (type == WeightType::Q4_K || type == WeightType::Q5_K) put_half(at + 2);
        }
    }
    return table;
}

template <WeightType type>
void check_embed(const KernelImpl& kernel, Random& random, Data data) {
    const bool quantised = contract::weight_type_info(type).quantised;
    const uint32_t n = quantised ? MUSER_BLOCK * random.between(1, 9) : random.between(1, 1500);
    const uint32_t vocab = random.between(1, 5);
    const uint64_t row_bytes = contract::row_bytes(type, n);
    const auto table = table_rows(random, type, vocab, n, data);
    StepValues step = {};
    step.token = random.below(vocab);
    step.device_token = random.below(vocab);
    step.chained = random.below(2);
    const EmbedArgs args = {n, vocab, row_bytes};
    Launch launch(kernel, args);
    launch.step(step).with(2, table).with(3, std::vector<float>(n)).run(random);
    std::vector<float> hidden(n);
    const uint32_t token = step.chained != 0 ? step.device_token : step.token;
    contract::dequantise_row(type, table.data() + token * row_bytes, n, hidden.data());
    expect_same(launch.result<float>(3), hidden, "hidden");

    // An id outside the table never reads past it, and cannot pass for a result.
    step.chained = 0;
    step.token = vocab;
    Launch outside(kernel, args);
    outside.step(step).with(2, table).with(3, std::vector<float>(n)).run(random);
    const auto nothing = outside.result<float>(3);
    EXPECT_TRUE(std::all_of(nothing.begin(), nothing.end(), [](float x) { return x != x; }));
}

uint32_t vocabulary(Random& random) {
    return random.pick({1u, 15u, 256u, 1023u, 1024u, 1025u, 5000u});
}

void check_softcap(const KernelImpl& kernel, Random& random, Data data) {
    const uint32_t n = vocabulary(random);
    const uint32_t groups = (n + MUSER_HEAD_GROUP - 1) / MUSER_HEAD_GROUP;
    auto x = floats(random, n, data == Data::damaged && random.one_in(2) ? Data::wide : data);
    if (data == Data::damaged) x[random.below(n)] = std::numeric_limits<float>::infinity();
    const float scale = random.pick({0.19611613f, 1.0f, 3.0f});
    const float cap = random.pick({20.0f, 30.0f, 7.5f});
    Launch launch(kernel, SoftcapArgs{n, scale, cap});
    launch.with(1, x).with(2, std::vector<uint32_t>(groups, 77)).run(random);
    for (uint32_t g = 0; g < groups; ++g) {
        const uint32_t first = g * MUSER_HEAD_GROUP;
        const uint32_t count = std::min<uint32_t>(n - first, MUSER_HEAD_GROUP);
        const bool bad = contract::softcap(&x[first], count, scale, cap);
        EXPECT_EQ(launch.result<uint32_t>(2)[g], bad ? 1u : 0u) << "flag of group " << g;
    }
    expect_same(launch.result<float>(1), x, "logits");
}

struct Best {
    float value;
    uint32_t id;
};

// Logits with many ties, or without anything above -inf.
std::vector<float> logits(Random& random, uint32_t n, Data data) {
    auto x = floats(random, n, data);
    if (random.one_in(2)) {
        for (float& v : x) v = static_cast<float>(random.below(4)) - 3.0f;
    }
    if (random.one_in(4)) std::fill(x.begin(), x.end(), -std::numeric_limits<float>::infinity());
    return x;
}

void check_argmax_groups(const KernelImpl& kernel, Random& random, Data data) {
    const uint32_t n = vocabulary(random);
    const uint32_t groups = (n + MUSER_HEAD_GROUP - 1) / MUSER_HEAD_GROUP;
    const auto x = logits(random, n, data);
    Launch launch(kernel, VectorArgs{n, 0});
    launch.with(1, x).with(2, std::vector<Best>(groups)).run(random);
    for (uint32_t g = 0; g < groups; ++g) {
        const uint32_t first = g * MUSER_HEAD_GROUP;
        const uint32_t count = std::min<uint32_t>(n - first, MUSER_HEAD_GROUP);
        const uint32_t id = contract::argmax(&x[first], count);
        const float best = x[first + id];
        const Best found = launch.result<Best>(2)[g];
        if (best > -std::numeric_limits<float>::infinity()) {
            EXPECT_EQ(found.id, first + id);
            // A subnormal counts as zero, and may come back as one.
            EXPECT_TRUE(same(contract::flush(found.value), contract::flush(best)))
                << found.value << " is not " << best;
        } else {
            EXPECT_EQ(found.id, 0u);
            EXPECT_EQ(found.value, -std::numeric_limits<float>::infinity());
        }
    }
}

void check_argmax_final(const KernelImpl& kernel, Random& random, Data data) {
    const uint32_t n = random.between(1, 300);
    const auto values = logits(random, n, data == Data::damaged ? Data::wide : data);
    std::vector<Best> best(n);
    // Ids rise with the groups; a group without a logit above -inf says 0.
    for (uint32_t i = 0; i < n; ++i) {
        const bool any = values[i] > -std::numeric_limits<float>::infinity();
        best[i] = {values[i], any ? i * MUSER_HEAD_GROUP + random.below(MUSER_HEAD_GROUP) : 0};
    }
    Launch launch(kernel, VectorArgs{n, 0});
    launch.with(1, best).with(2, std::vector<uint32_t>(1, 99)).run(random);
    EXPECT_EQ(launch.result<uint32_t>(2)[0], best[contract::argmax(values.data(), n)].id);
}

void check_probe(const KernelImpl& kernel, Random& random, Data) {
    const auto rows = contract::probe_rows();
    const auto input = contract::probe_input();
    Launch launch(kernel, ProbeArgs{static_cast<uint32_t>(rows.size())});
    launch.with(1, std::vector<uint32_t>(input.begin(), input.end()));
    launch.with(2, std::vector<uint32_t>(rows.size())).run(random);
    const auto results = launch.result<uint32_t>(2);
    EXPECT_NO_THROW(contract::check_probe(results.data(), results.size(), "cpu"));
}

}  // namespace

void add_head_checks(Checks& checks) {
    checks["embed_q4_K"] = check_embed<WeightType::Q4_K>;
    checks["embed_q5_K"] = check_embed<WeightType::Q5_K>;
    checks["embed_q6_K"] = check_embed<WeightType::Q6_K>;
    checks["embed_q8_0"] = check_embed<WeightType::Q8_0>;
    checks["embed_f32"] = check_embed<WeightType::F32>;
    checks["embed_f16"] = check_embed<WeightType::F16>;
    checks["embed_bf16"] = check_embed<WeightType::BF16>;
    checks["softcap_f32"] = check_softcap;
    checks["argmax_groups_f32"] = check_argmax_groups;
    checks["argmax_final_f32"] = check_argmax_final;
    checks["probe_u32"] = check_probe;
}

}  // namespace muser::cpu_test
