// RoPE, KV store and staging against the contract.
#include <gtest/gtest.h>

#include <algorithm>

#include "contract/half.h"
#include "contract/norm.h"
#include "contract/rope.h"
#include "support.h"

namespace muser::cpu_test {
namespace {

using device::cpu::KernelImpl;

uint16_t put(float v, uint16_t) { return contract::f32_to_f16(v); }
float put(float v, float) { return v; }

// Bits, since a plane may hold any.
template <class T>
void expect_bytes(const Launch& launch, unsigned index, const std::vector<T>& expected,
                  const char* what) {
    const auto found = launch.result<std::byte>(index);
    ASSERT_EQ(found.size(), expected.size() * sizeof(T));
    const auto* wanted = reinterpret_cast<const std::byte*>(expected.data());
    const auto [at, other] = std::mismatch(found.begin(), found.end(), wanted);
    EXPECT_TRUE(at == found.end()) << what << " differs at byte " << at - found.begin();
}

template <class T>
std::vector<T> rubbish(Random& random, size_t n) {
    std::vector<T> v(n);
    for (T& x : v) x = put(random.uniform(), T{});
    return v;
}

void fill_rope(StepValues& step, Random& random) {
    for (float& c : step.rope_cos) c = random.uniform();
    for (float& s : step.rope_sin) s = random.uniform();
}

void check_rope(const KernelImpl& kernel, Random& random, Data data) {
    const uint32_t heads = random.between(1, 33);
    const uint32_t dim = random.pick({2u, 16u, 64u, 100u, 128u, 256u});
    StepValues step = {};
    fill_rope(step, random);
    auto x = floats(random, heads * dim, data);
    Launch launch(kernel, RopeArgs{heads, dim});
    launch.step(step).with(2, x).run(random);
    for (uint32_t h = 0; h < heads; ++h) {
        contract::rope(&x[h * dim], step.rope_cos, step.rope_sin, dim / 2);
    }
    expect_same(launch.result<float>(2), x, "x");
}

// A step that stores to a random row of a plane of `rows` rows, journal of `journal_rows`.
KvView& store_step(StepValues& step, Random& random, uint32_t which, uint32_t rows,
                   uint32_t journal_rows) {
    KvView& view = which == MUSER_VIEW_RING    ? step.ring
                   : which == MUSER_VIEW_PLANE ? step.plane
                                               : step.shadow;
    view.write_row = random.below(rows);
    step.journal_row = random.below(journal_rows);
    step.overwrite = random.below(2);
    return view;
}

template <class T>
struct StoredPlane {
    std::vector<T> rows, journal;

    StoredPlane(Random& random, size_t row_count, size_t journal_rows, size_t width)
        : rows(rubbish<T>(random, row_count * width)),
          journal(rubbish<T>(random, journal_rows * width)) {}
    void store(const StepValues& step, uint32_t write_row, bool keep, const std::vector<float>& x) {
        T* row = &rows[write_row * x.size()];
        if (keep) std::copy_n(row, x.size(), &journal[step.journal_row * x.size()]);
        for (size_t i = 0; i < x.size(); ++i) row[i] = put(x[i], T{});
    }
};

template <class T>
void check_store(const KernelImpl& kernel, Random& random, Data data) {
    const uint32_t width = random.pick({16u, 24u, 128u, 256u, 300u});
    const uint32_t rows = random.between(1, 9), journal_rows = random.between(1, 4);
    StepValues step = {};
    const KvStoreArgs args = {width, random.below(3), random.below(2)};
    const KvView& view = store_step(step, random, args.view, rows, journal_rows);
    // NaN payloads are no part of the contract; infinities are values like any other.
    const auto k = floats(random, width, data == Data::damaged ? Data::wide : data);
    const auto v = floats(random, width, data == Data::damaged ? Data::wide : data);
    StoredPlane<T> plane_k(random, rows, journal_rows, width);
    StoredPlane<T> plane_v(random, rows, journal_rows, width);
    Launch launch(kernel, args);
    launch.step(step).with(2, k).with(3, v).with(4, plane_k.rows).with(5, plane_v.rows);
    if (args.journal != 0) launch.with(6, plane_k.journal).with(7, plane_v.journal);
    launch.run(random);
    const bool keep = args.journal != 0 && step.overwrite != 0;
    plane_k.store(step, view.write_row, keep, k);
    plane_v.store(step, view.write_row, keep, v);
    expect_bytes(launch, 4, plane_k.rows, "K");
    expect_bytes(launch, 5, plane_v.rows, "V");
    if (args.journal != 0) {
        expect_bytes(launch, 6, plane_k.journal, "journal K");
        expect_bytes(launch, 7, plane_v.journal, "journal V");
    }
}

template <class T>
void check_stage(const KernelImpl& kernel, Random& random, Data data) {
    const uint32_t width = random.pick({32u, 64u, 128u, 256u});
    const uint32_t capacity = random.between(1, 40);
    StepValues step = {};
    step.ring.count = random.one_in(2) ? capacity : random.between(1, capacity);
    step.ring.older = step.ring.count - 1;
    step.ring.first_row = random.below(capacity);
    step.shadow.count = step.ring.count;
    step.shadow.older = step.ring.older;
    const Data kind = data == Data::damaged ? Data::wide : data;
    std::vector<float> own[2] = {floats(random, width, kind), floats(random, width, kind)};
    std::vector<T> ring[2], shadow[2];
    Launch launch(kernel, SwaStageArgs{width, capacity});
    launch.step(step);
    for (unsigned p = 0; p < 2; ++p) {
        ring[p] = rubbish<T>(random, capacity * width);
        shadow[p] = rubbish<T>(random, capacity * width);
        launch.with(2 + p, own[p]).with(4 + p, ring[p]).with(6 + p, shadow[p]);
    }
    launch.run(random);
    for (unsigned p = 0; p < 2; ++p) {
        for (uint32_t i = 0; i < step.ring.count; ++i) {
            for (uint32_t e = 0; e < width; ++e) {
                const uint32_t row = (step.ring.first_row + i) % capacity;
                shadow[p][i * width + e] =
                    i < step.ring.older ? ring[p][row * width + e] : put(own[p][e], T{});
            }
        }
        expect_bytes(launch, 6 + p, shadow[p], p == 0 ? "shadow K" : "shadow V");
    }
}

template <class T>
void check_qk_store(const KernelImpl& kernel, Random& random, Data data) {
    const uint32_t dim = random.pick({16u, 30u, 64u, 128u, 256u});
    const uint32_t kv_heads = random.between(1, 3);
    const uint32_t heads = kv_heads * random.between(1, 6);
    const uint32_t width = kv_heads * dim;
    const uint32_t rows = random.between(1, 9), journal_rows = random.between(1, 4);
    const QkStoreArgs args = {heads,           kv_heads,        dim,  random.below(3),
                              random.below(2), random.below(2), 1e-5f};
    StepValues step = {};
    fill_rope(step, random);
    const KvView& view = store_step(step, random, args.view, rows, journal_rows);
    const Data kind = data == Data::damaged ? Data::wide : data;
    const auto q_weight = floats(random, dim, Data::plain), k_weight = floats(random, dim, kind);
    auto q = floats(random, heads * dim, data);
    auto k = floats(random, width, Data::plain);
    const auto v = floats(random, width, kind);
    StoredPlane<T> plane_k(random, rows, journal_rows, width);
    StoredPlane<T> plane_v(random, rows, journal_rows, width);
    Launch launch(kernel, args);
    launch.step(step).with(2, q_weight).with(3, k_weight).with(4, q).with(5, k).with(6, v);
    launch.with(7, plane_k.rows).with(8, plane_v.rows);
    launch.with(9, plane_k.journal).with(10, plane_v.journal).run(random);
    expect_bytes(launch, 5, k, "k, which is only read");

    const auto norm_rope = [&](float* x, const std::vector<float>& weight) {
        contract::rms_norm(x, weight.data(), dim, args.eps, x);
        if (args.rope != 0) contract::rope(x, step.rope_cos, step.rope_sin, dim / 2);
    };
    for (uint32_t h = 0; h < heads; ++h) norm_rope(&q[h * dim], q_weight);
    for (uint32_t h = 0; h < kv_heads; ++h) norm_rope(&k[h * dim], k_weight);
    const bool keep = args.journal != 0 && step.overwrite != 0;
    plane_k.store(step, view.write_row, keep, k);
    plane_v.store(step, view.write_row, keep, v);
    expect_same(launch.result<float>(4), q, "q");
    expect_bytes(launch, 7, plane_k.rows, "K");
    expect_bytes(launch, 8, plane_v.rows, "V");
    expect_bytes(launch, 9, plane_k.journal, "journal K");
    expect_bytes(launch, 10, plane_v.journal, "journal V");
}

}  // namespace

void add_cache_checks(Checks& checks) {
    checks["rope_f32"] = check_rope;
    checks["kv_store_f16"] = check_store<uint16_t>;
    checks["kv_store_f32"] = check_store<float>;
    checks["swa_stage_f16"] = check_stage<uint16_t>;
    checks["swa_stage_f32"] = check_stage<float>;
    checks["qk_norm_rope_store_f16"] = check_qk_store<uint16_t>;
    checks["qk_norm_rope_store_f32"] = check_qk_store<float>;
}

}  // namespace muser::cpu_test
