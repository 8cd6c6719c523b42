#include "contract/attention.h"

#include <gtest/gtest.h>

#include <map>

#include "contract/half.h"
#include "contract/pointwise.h"
#include "errors.h"
#include "reference.h"

namespace muser::contract {
namespace {

using reference::bits;
using reference::kInfinity;
using reference::kNaN;
using reference::Random;

struct Scene {
    size_t head_dim;
    int64_t positions;
    std::vector<float> q;
    std::vector<float> k;  // [positions][head_dim], values that f16 holds exactly
    std::vector<float> v;

    Scene(size_t dim, int64_t count, Random& random) : head_dim(dim), positions(count) {
        q = values(1, 2.0f, random);
        k = values(count, 1.0f, random);
        v = values(count, 1.0f, random);
    }

    std::vector<float> values(int64_t rows, float size, Random& random) const {
        std::vector<float> list(static_cast<size_t>(rows) * head_dim);
        for (float& x : list) x = f16_to_f32(f32_to_f16(random.gaussian() * size));
        return list;
    }

    KvRows plane(const std::vector<float>& data) const {
        return {data.data(), KvType::F32, head_dim, positions, 0, 0};
    }

    std::vector<float> run(int64_t begin, int64_t end) const {
        std::vector<float> out(head_dim);
        attention(q.data(), plane(k), plane(v), begin, end, head_dim, out.data());
        return out;
    }
};

float score_of(const Scene& scene, int64_t pos) {
    std::vector<float> partials(32, 0.0f);
    for (size_t d = 0; d < scene.head_dim; ++d) {
        const float key = scene.k[static_cast<size_t>(pos) * scene.head_dim + d];
        partials[d % 32] = reference::fma(scene.q[d], key, partials[d % 32]);
    }
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(scene.head_dim)));
    return reference::mul(reference::tree(partials), scale);
}

struct Chunk {
    float m = -kInfinity;
    std::vector<float> p = std::vector<float>(64, 0.0f);
    std::vector<float> o;
};

// The definition again, over a map of chunks by absolute position.
std::vector<float> expected(const Scene& scene, int64_t begin, int64_t end) {
    std::map<int64_t, Chunk> chunks;
    float top = -kInfinity;
    for (int64_t pos = begin; pos < end; ++pos) {
        Chunk& chunk = chunks[pos / 64];
        chunk.m = std::max(chunk.m, score_of(scene, pos));
        top = std::max(top, chunk.m);
    }
    for (int64_t pos = begin; pos < end; ++pos) {
        Chunk& chunk = chunks[pos / 64];
        const float p = exp(reference::add(score_of(scene, pos), -chunk.m));
        chunk.p[static_cast<size_t>(pos % 64)] = p;
        chunk.o.resize(scene.head_dim, 0.0f);
        for (size_t d = 0; d < scene.head_dim; ++d) {
            const float value = scene.v[static_cast<size_t>(pos) * scene.head_dim + d];
            chunk.o[d] = reference::fma(p, value, chunk.o[d]);
        }
    }
    float l = 0;
    std::vector<float> out(scene.head_dim, 0.0f);
    for (const auto& [index, chunk] : chunks) {
        const float a = exp(reference::add(chunk.m, -top));
        l = reference::fma(a, reference::tree(chunk.p), l);
        for (size_t d = 0; d < out.size(); ++d) out[d] = reference::fma(a, chunk.o[d], out[d]);
    }
    for (float& value : out) value = reference::div(value, l);
    return out;
}

void expect_same(const std::vector<float>& found, const std::vector<float>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t d = 0; d < found.size(); ++d) ASSERT_EQ(bits(found[d]), bits(wanted[d])) << d;
}

const size_t kHeadDims[] = {16, 64, 128};

TEST(Attention, HeadsAgreeWithTheDefinitionRestated) {
    Random random(41);
    const std::pair<int64_t, int64_t> ranges[] = {{0, 1},     {0, 63},    {0, 64},   {0, 65},
                                                  {63, 65},   {37, 200},  {64, 128}, {5, 6},
                                                  {100, 101}, {128, 300}, {1, 257}};
    for (const size_t head_dim : kHeadDims) {
        const Scene scene(head_dim, 300, random);
        for (const auto& [begin, end] : ranges) {
            SCOPED_TRACE(testing::Message() << head_dim << ": " << begin << " ... " << end);
            expect_same(scene.run(begin, end), expected(scene, begin, end));
        }
    }
}

TEST(Attention, HeadsAreCloseToFloat64) {
    Random random(42);
    for (const size_t head_dim : kHeadDims) {
        const Scene scene(head_dim, 300, random);
        std::vector<double> out(head_dim, 0.0);
        double total = 0;
        for (int64_t pos = 10; pos < 300; ++pos) {
            double dot = 0;
            for (size_t d = 0; d < head_dim; ++d) {
                dot += double{scene.q[d]} * scene.k[static_cast<size_t>(pos) * head_dim + d];
            }
            const double p = std::exp(dot / std::sqrt(static_cast<double>(head_dim)));
            total += p;
            for (size_t d = 0; d < head_dim; ++d) {
                out[d] += p * scene.v[static_cast<size_t>(pos) * head_dim + d];
            }
        }
        const std::vector<float> found = scene.run(10, 300);
        for (size_t d = 0; d < head_dim; ++d) EXPECT_NEAR(found[d], out[d] / total, 2e-6);
    }
}

// The same positions out of a wrapped ring of any rotation, out of a staged copy and out of f16.
TEST(Attention, RingShadowAndPlaneGiveTheSameBits) {
    Random random(43);
    const Scene scene(64, 400, random);
    const size_t dim = scene.head_dim;
    const int64_t window = 100;
    for (const int64_t last : {99, 100, 101, 200, 255, 256, 399}) {
        const int64_t begin = std::max<int64_t>(0, last + 1 - window);
        const int64_t end = last + 1;
        const std::vector<float> wanted = scene.run(begin, end);

        const size_t stride = dim + 8;  // rows of other heads lie between
        std::vector<uint16_t> ring_k(static_cast<size_t>(window) * stride, 0x7e00);
        std::vector<uint16_t> ring_v = ring_k;
        std::vector<float> shadow_k(static_cast<size_t>(window) * dim, kNaN);
        std::vector<float> shadow_v = shadow_k;
        for (int64_t pos = begin; pos < end; ++pos) {
            for (size_t d = 0; d < dim; ++d) {
                const size_t from = static_cast<size_t>(pos) * dim + d;
                const size_t slot = static_cast<size_t>(pos % window) * stride + d;
                ring_k[slot] = f32_to_f16(scene.k[from]);
                ring_v[slot] = f32_to_f16(scene.v[from]);
                const size_t staged = static_cast<size_t>(pos - begin) * dim + d;
                shadow_k[staged] = scene.k[from];
                shadow_v[staged] = scene.v[from];
            }
        }
        std::vector<float> out(dim);
        const KvRows rk{ring_k.data(), KvType::F16, stride, window, 0, 0};
        const KvRows rv{ring_v.data(), KvType::F16, stride, window, 0, 0};
        attention(scene.q.data(), rk, rv, begin, end, dim, out.data());
        expect_same(out, wanted);
        const KvRows sk{shadow_k.data(), KvType::F32, dim, window, begin, 0};
        const KvRows sv{shadow_v.data(), KvType::F32, dim, window, begin, 0};
        attention(scene.q.data(), sk, sv, begin, end, dim, out.data());
        expect_same(out, wanted);
    }
}

TEST(Attention, RowsAreFoundThroughBothOrigins) {
    const KvRows rows{nullptr, KvType::F16, 1, 8, 20, 3};
    EXPECT_EQ(rows.physical_row(20), 3);
    EXPECT_EQ(rows.physical_row(24), 7);
    EXPECT_EQ(rows.physical_row(25), 0);
    EXPECT_EQ(rows.physical_row(16), 7);  // before the origin, the ring wraps backwards
}

TEST(Attention, ScaleIsRoundedOnce) {
    EXPECT_EQ(attention_scale(16), 0.25f);
    EXPECT_EQ(attention_scale(64), 0.125f);
    EXPECT_EQ(attention_scale(128), 0x1.6a09e6p-4f);
    EXPECT_EQ(attention_scale(96), static_cast<float>(1 / std::sqrt(96.0)));
}

TEST(Attention, ChunksFollowAbsolutePositions) {
    Random random(44);
    const Scene scene(16, 130, random);
    float o[16];
    const auto chunk = [&](int64_t index, int64_t begin, int64_t end) {
        return attention_chunk(scene.q.data(), scene.plane(scene.k), scene.plane(scene.v), index,
                               begin, end, 16, attention_scale(16), o);
    };
    EXPECT_EQ(chunk(1, 0, 130).m, chunk(1, 64, 128).m);
    EXPECT_EQ(chunk(1, 70, 71).l, 1.0f);  // one key: exp(0)
    EXPECT_EQ(bits(o[3]), bits(scene.v[70 * 16 + 3]));
    EXPECT_THROW(chunk(1, 0, 64), Error);
    EXPECT_THROW(scene.run(5, 5), Error);
}

TEST(Attention, NonFiniteValuesReachTheResult) {
    Random random(45);
    for (const float bad : {kNaN, kInfinity, -kInfinity}) {
        Scene scene(64, 100, random);
        scene.v[50 * 64 + 7] = bad;
        EXPECT_FALSE(std::isfinite(scene.run(0, 100)[7]));
        EXPECT_TRUE(std::isfinite(scene.run(0, 100)[8]));
        scene.k[20 * 64 + 1] = kNaN;
        EXPECT_TRUE(std::isnan(scene.run(0, 100)[8]));
        EXPECT_TRUE(std::isfinite(scene.run(21, 50)[8]));  // not visible, no harm
    }
}

TEST(Attention, LargeScoresDoNotOverflow) {
    Random random(46);
    Scene scene(16, 200, random);
    for (float& x : scene.q) x *= 1000.0f;
    const std::vector<float> out = scene.run(0, 200);
    expect_same(out, expected(scene, 0, 200));
    for (const float value : out) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace muser::contract
