// RoPE, the KV store, staging and attention against the contract, over rings and planes.
#include "contract/attention.h"

#include <algorithm>

#include "contract/half.h"
#include "contract/norm.h"
#include "contract/pointwise.h"
#include "contract/rope.h"
#include "kernel_run.h"

namespace muser::emulator_test {
namespace {

using contract::KvType;

// A plane or ring with every row's K and V, and the step values of one position.
struct Cache {
    KvType type;
    uint32_t kv_heads, head_dim, capacity;
    uint32_t window;  // 0: a plane
    uint32_t position;
    std::vector<uint8_t> k, v;  // this token's row not yet stored

    uint32_t width() const { return kv_heads * head_dim; }
    size_t element() const { return type == KvType::F16 ? 2 : 4; }
    size_t row_bytes() const { return width() * element(); }
    const char* name() const { return type == KvType::F16 ? "f16" : "f32"; }
    bool wrapped() const { return window != 0 && position >= window; }
    uint32_t view() const { return window != 0 ? MUSER_VIEW_RING : MUSER_VIEW_PLANE; }

    KvView kv_view() const {
        KvView out{};
        out.first_position = wrapped() ? position - window + 1 : 0;
        out.count = position - out.first_position + 1;
        out.older = out.count - 1;
        out.first_row = out.first_position % capacity;
        out.write_row = position % capacity;
        out.chunks = position / 64 - out.first_position / 64 + 1;
        return out;
    }
    std::vector<uint8_t> step(uint32_t journal_row = 0, const float* cos = nullptr,
                              const float* sin = nullptr) const {
        StepValues values{};
        values.position = position;
        values.journal_row = journal_row;
        values.overwrite = wrapped() ? 1 : 0;
        (window != 0 ? values.ring : values.plane) = kv_view();
        values.shadow = kv_view();
        values.shadow.first_row = 0;
        if (cos != nullptr) {
            std::copy(cos, cos + head_dim / 2, values.rope_cos);
            std::copy(sin, sin + head_dim / 2, values.rope_sin);
        }
        std::vector<uint8_t> out(sizeof values);
        std::memcpy(out.data(), &values, sizeof values);
        return out;
    }
    void put(std::vector<uint8_t>& plane, uint32_t row, const float* values) const {
        for (uint32_t i = 0; i < width(); ++i) {
            const size_t at = row * row_bytes() + i * element();
            if (type == KvType::F32) {
                std::memcpy(&plane[at], &values[i], 4);
            } else {
                const uint16_t half = contract::f32_to_f16(values[i]);
                std::memcpy(&plane[at], &half, 2);
            }
        }
    }
};

Cache make_cache(KvType type, uint32_t kv_heads, uint32_t head_dim, uint32_t window,
                 uint32_t position, std::mt19937& random) {
    Cache cache{type,   kv_heads, head_dim, window != 0 ? window : position + 5,
                window, position, {},       {}};
    cache.k.resize(cache.capacity * cache.row_bytes());
    cache.v = cache.k;
    for (uint32_t row = 0; row < cache.capacity; ++row) {
        cache.put(cache.k, row, random_floats(cache.width(), random).data());
        cache.put(cache.v, row, random_floats(cache.width(), random).data());
    }
    return cache;
}

Use rows_use(uint32_t argument, BufferRef buffer, Access access, const Cache& cache,
             uint32_t first_word, uint32_t count_word) {
    const uint64_t bytes = buffer->length;
    return {argument,
            std::move(buffer),
            {{argument,
              access,
              0,
              bytes,
              {true, 1, first_word, count_word, cache.capacity, cache.row_bytes()}}}};
}
uint32_t view_word(const Cache& cache, size_t field) {
    return (kernels::view_offset(cache.view()) + static_cast<uint32_t>(field)) / 4;
}

contract::KvRows rows_of(const Cache& cache, const std::vector<uint8_t>& plane, uint32_t kv_head) {
    contract::KvRows rows;
    rows.data = plane.data() + kv_head * cache.head_dim * cache.element();
    rows.type = cache.type;
    rows.row_stride = cache.width();
    rows.capacity = cache.capacity;
    return rows;
}

TEST(Rope, InterleavedPairs) {
    std::mt19937 random(30);
    for (const uint32_t dim : {2u, 64u, 128u, 256u}) {
        for (const uint32_t heads : {1u, 5u}) {
            const auto x = random_floats(heads * dim, random);
            std::vector<double> inverse(dim / 2);
            for (uint32_t i = 0; i < dim / 2; ++i) inverse[i] = 1.0 / (1.0 + i);
            std::vector<float> cos(dim / 2);
            std::vector<float> sin(dim / 2);
            contract::rope_table(1234, inverse.data(), dim / 2, cos.data(), sin.data());
            auto expected = x;
            for (uint32_t h = 0; h < heads; ++h) {
                contract::rope(&expected[h * dim], cos.data(), sin.data(), dim / 2);
            }
            Cache cache{KvType::F16, 1, dim, 1, 0, 0, {}, {}};
            expect_kernels([&](Recording& r) {
                const auto state = r.machine().upload(x);
                r.dispatch(
                    "rope_f32", RopeArgs{heads, dim}, heads * dim / 2, 1,
                    {step_use("rope_f32", r.machine().upload(cache.step(0, cos.data(), sin.data())),
                              {.head_dim = dim}),
                     updates(2, state)});
                r.expect(state, expected);
            });
        }
    }
}

TEST(KvStore, PlanesRingsAndTheJournal) {
    std::mt19937 random(31);
    for (const KvType type : {KvType::F16, KvType::F32}) {
        for (const uint32_t position : {0u, 5u, 16u, 37u}) {
            for (const uint32_t window : {0u, 16u}) {
                for (const bool journal : {false, true}) {
                    const Cache cache = make_cache(type, 3, 32, window, position, random);
                    const auto k = random_floats(cache.width(), random, Values::sparse);
                    const auto v = random_floats(cache.width(), random, Values::wide);
                    constexpr uint32_t kJournalRows = 4, kJournalRow = 2;
                    const KvView view = cache.kv_view();
                    std::vector<uint8_t> kept_k(kJournalRows * cache.row_bytes());
                    auto kept_v = kept_k;
                    const bool keep = journal && cache.wrapped();
                    if (keep) {
                        const auto row = static_cast<ptrdiff_t>(view.write_row * cache.row_bytes());
                        const auto bytes = static_cast<ptrdiff_t>(cache.row_bytes());
                        std::copy(cache.k.begin() + row, cache.k.begin() + row + bytes,
                                  kept_k.begin() + kJournalRow * bytes);
                        std::copy(cache.v.begin() + row, cache.v.begin() + row + bytes,
                                  kept_v.begin() + kJournalRow * bytes);
                    }
                    auto plane_k = cache.k;
                    auto plane_v = cache.v;
                    cache.put(plane_k, view.write_row, k.data());
                    cache.put(plane_v, view.write_row, v.data());
                    const std::string kernel = "kv_store_" + std::string(cache.name());
                    expect_kernels([&](Recording& r) {
                        Machine& m = r.machine();
                        const auto to_k = m.upload(cache.k);
                        const auto to_v = m.upload(cache.v);
                        const auto journal_k = m.upload(std::vector<uint8_t>(kept_k.size()));
                        const auto journal_v = m.upload(std::vector<uint8_t>(kept_k.size()));
                        const auto stored = [&](uint32_t argument, const BufferRef& plane) {
                            Use use = rows_use(argument, plane, Access::write, cache,
                                               view_word(cache, offsetof(KvView, write_row)),
                                               RowRule::kConstant);
                            if (keep) use.accesses[0].access = Access::read_write;
                            return use;
                        };
                        const auto kept = [&](uint32_t argument, const BufferRef& plane) {
                            if (!journal) return unused(argument, plane);
                            Use use = rows_use(argument, plane, Access::write, cache,
                                               offsetof(StepValues, journal_row) / 4,
                                               offsetof(StepValues, overwrite) / 4);
                            use.accesses[0].rows.capacity = kJournalRows;
                            return use;
                        };
                        r.dispatch(kernel, KvStoreArgs{cache.width(), cache.view(), journal},
                                   cache.width(), 1,
                                   {step_use(kernel, m.upload(cache.step(kJournalRow)),
                                             {.view = cache.view(), .journal = journal}),
                                    reads(2, m.upload(k)), reads(3, m.upload(v)), stored(4, to_k),
                                    stored(5, to_v), kept(6, journal_k), kept(7, journal_v)});
                        r.expect_bits(to_k, plane_k, "K");
                        r.expect_bits(to_v, plane_v, "V");
                        r.expect_bits(journal_k, kept_k, "journal K");
                        r.expect_bits(journal_v, kept_v, "journal V");
                    });
                }
            }
        }
    }
}

TEST(SwaStage, ShadowInPositionOrder) {
    std::mt19937 random(32);
    for (const KvType type : {KvType::F16, KvType::F32}) {
        for (const uint32_t position : {16u, 21u, 31u, 40u}) {
            const Cache cache = make_cache(type, 2, 64, 16, position, random);
            const auto k = random_floats(cache.width(), random);
            const auto v = random_floats(cache.width(), random);
            const KvView view = cache.kv_view();
            std::vector<uint8_t> shadow_k(cache.k.size());
            std::vector<uint8_t> shadow_v(cache.k.size());
            const auto bytes = static_cast<ptrdiff_t>(cache.row_bytes());
            for (uint32_t i = 0; i < view.older; ++i) {
                const ptrdiff_t from = (view.first_row + i) % cache.capacity * bytes;
                std::copy(cache.k.begin() + from, cache.k.begin() + from + bytes,
                          shadow_k.begin() + i * bytes);
                std::copy(cache.v.begin() + from, cache.v.begin() + from + bytes,
                          shadow_v.begin() + i * bytes);
            }
            cache.put(shadow_k, view.older, k.data());
            cache.put(shadow_v, view.older, v.data());
            const std::string kernel = "swa_stage_" + std::string(cache.name());
            expect_kernels([&](Recording& r) {
                Machine& m = r.machine();
                const auto to_k = m.blank(shadow_k.size());
                const auto to_v = m.blank(shadow_v.size());
                const auto older = [&](uint32_t argument, const std::vector<uint8_t>& plane) {
                    return rows_use(argument, m.upload(plane), Access::read, cache,
                                    view_word(cache, offsetof(KvView, first_row)),
                                    view_word(cache, offsetof(KvView, older)));
                };
                const auto staged = [&](uint32_t argument, const BufferRef& plane) {
                    return rows_use(argument, plane, Access::write, cache, RowRule::kConstant,
                                    view_word(cache, offsetof(KvView, count)));
                };
                r.dispatch(kernel, SwaStageArgs{cache.width(), cache.capacity}, cache.capacity, 1,
                           {step_use(kernel, m.upload(cache.step())), reads(2, m.upload(k)),
                            reads(3, m.upload(v)), older(4, cache.k), older(5, cache.v),
                            staged(6, to_k), staged(7, to_v)});
                r.expect_bits(to_k, shadow_k, "K");
                r.expect_bits(to_v, shadow_v, "V");
            });
        }
    }
}

struct AttentionCase {
    KvType type;
    uint32_t heads, kv_heads, head_dim, window, position;
    Values values = Values::ordinary;
};

void expect_attention(const AttentionCase& c, std::mt19937& random) {
    const Cache cache = make_cache(c.type, c.kv_heads, c.head_dim, c.window, c.position, random);
    const uint32_t n = c.heads * c.head_dim;
    const auto q = random_floats(n, random, c.values);
    const auto gate = random_floats(n, random);
    const KvView view = cache.kv_view();
    std::vector<float> expected(n);
    std::vector<float> partials;
    for (uint32_t h = 0; h < c.heads; ++h) {
        const uint32_t kv_head = h / (c.heads / c.kv_heads);
        const auto keys = rows_of(cache, cache.k, kv_head);
        const auto values = rows_of(cache, cache.v, kv_head);
        contract::attention(&q[h * c.head_dim], keys, values, view.first_position, c.position + 1,
                            c.head_dim, &expected[h * c.head_dim]);
    }
    const float scale = contract::attention_scale(c.head_dim);
    for (uint32_t chunk = 0; chunk < view.chunks; ++chunk) {
        for (uint32_t h = 0; h < c.heads; ++h) {
            const uint32_t kv_head = h / (c.heads / c.kv_heads);
            std::vector<float> o(c.head_dim);
            const contract::ChunkState state = contract::attention_chunk(
                &q[h * c.head_dim], rows_of(cache, cache.k, kv_head),
                rows_of(cache, cache.v, kv_head), view.first_position / 64 + chunk,
                view.first_position, c.position + 1, c.head_dim, scale, o.data());
            partials.push_back(state.m);
            partials.push_back(state.l);
            partials.insert(partials.end(), o.begin(), o.end());
        }
    }
    auto gated = expected;
    contract::sigmoid_gate(expected.data(), gate.data(), n, gated.data());

    const uint32_t bucket = view.chunks + 2;  // surplus threadgroups
    const uint64_t stride = uint64_t{c.heads} * (2 + c.head_dim) * 4;
    const uint32_t blocks = n % 256 == 0 ? n / 256 : 0;
    const AttendArgs args{c.heads,        c.kv_heads, c.head_dim, cache.view(),
                          cache.capacity, blocks,     scale};
    // The cuda device's own kernels, where they take the shape (cuda_attention.inc).
    const uint32_t queries = std::min(c.heads / c.kv_heads, 8u);
    const bool own = c.type == KvType::F16 && c.head_dim == 128 && queries % 2 == 0 &&
                     c.heads / c.kv_heads % queries == 0;
    enum class Form { heads, gqa, cuda };
    for (const Form form_of : {Form::heads, Form::gqa, Form::cuda}) {
        if (form_of == Form::cuda && !own) continue;
        const bool gqa = form_of == Form::gqa;
        expect_kernels([&](Recording& r) {
            Machine& m = r.machine();
            const auto step = m.upload(cache.step());
            const auto chunks = m.blank(stride * view.chunks);
            const auto out = m.blank(n * 4);
            const auto out_gated = m.blank(n * 4);
            const auto form = m.blank(blocks == 0 ? 4 : MUSER_BLOCK_FORM_BYTES(n));
            const auto plane = [&](uint32_t argument, const std::vector<uint8_t>& rows) {
                return rows_use(argument, m.upload(rows), Access::read, cache,
                                view_word(cache, offsetof(KvView, first_row)),
                                view_word(cache, offsetof(KvView, count)));
            };
            const auto partials_use = [&](uint32_t argument, Access access) {
                Use use = rows_use(argument, chunks, access, cache, RowRule::kConstant,
                                   view_word(cache, offsetof(KvView, chunks)));
                use.accesses[0].rows.capacity = 0;
                use.accesses[0].rows.stride = stride;
                return use;
            };
            const kernels::StepReadFacts facts{.view = cache.view()};
            const std::string kernel =
                (gqa ? "attend_chunks_gqa_" : "attend_chunks_") + std::string(cache.name());
            const std::vector<Use> of_chunks = {step_use(kernel, step, facts),
                                                reads(2, m.upload(q)), plane(3, cache.k),
                                                plane(4, cache.v), partials_use(5, Access::write)};
            const std::vector<Use> of_gate = {step_use("attend_combine_gate_b16", step, facts),
                                              partials_use(2, Access::read),
                                              reads(3, m.upload(gate)), writes(4, out_gated),
                                              blocks == 0 ? unused(5, form) : writes(5, form)};
            if (form_of == Form::cuda) {
                r.dispatch_groups("cuda_attend_128", args, {bucket, c.heads / queries, 1}, 256,
                                  of_chunks);
                r.barrier({chunks});
                r.dispatch_groups("cuda_combine_gate_128", args, {c.heads / 2, 1, 1}, 256, of_gate);
            } else {
                r.dispatch(kernel, args, bucket, gqa ? c.kv_heads : c.heads, of_chunks);
                r.barrier({chunks});
                r.dispatch("attend_combine_gate_b16", args, n, 1, of_gate);
            }
            r.dispatch("attend_combine_f32", args, n, 1,
                       {step_use("attend_combine_f32", step, facts), partials_use(2, Access::read),
                        writes(3, out)});
            r.expect(chunks, partials, "partials");
            r.expect(out, expected, "attention");
            r.expect(out_gated, gated, "gated");
            if (blocks != 0) r.expect_bits(form, block_form(gated), "block form");
        });
    }
}

TEST(Attention, PlanesAndRings) {
    std::mt19937 random(33);
    const AttentionCase cases[] = {
        {KvType::F16, 2, 1, 32, 0, 0},     {KvType::F16, 4, 2, 64, 0, 63},
        {KvType::F16, 4, 2, 64, 0, 64},    {KvType::F32, 3, 3, 96, 0, 130},
        {KvType::F16, 8, 2, 128, 0, 200},  {KvType::F16, 4, 1, 256, 48, 47},
        {KvType::F16, 4, 2, 128, 48, 48},  {KvType::F32, 4, 2, 64, 48, 111},
        {KvType::F16, 8, 2, 64, 100, 333}, {KvType::F16, 32, 2, 128, 70, 129},
    };
    for (const AttentionCase& c : cases) expect_attention(c, random);
}

TEST(Attention, AsTheCudaDeviceDoesIt) {
    std::mt19937 random(37);
    const AttentionCase cases[] = {
        {KvType::F16, 32, 2, 128, 0, 63},  {KvType::F16, 8, 1, 128, 100, 333},
        {KvType::F16, 8, 2, 128, 70, 69},  {KvType::F16, 4, 2, 128, 0, 2},
        {KvType::F16, 8, 1, 128, 0, 2300},  // more chunks than a thread has on their way
    };
    for (const AttentionCase& c : cases) expect_attention(c, random);
    for (const Values values : {Values::sparse, Values::not_finite, Values::wide}) {
        expect_attention({KvType::F16, 16, 2, 128, 48, 130, values}, random);
    }
}

TEST(Attention, ValuesThatAreNotFinite) {
    std::mt19937 random(34);
    for (const Values values : {Values::sparse, Values::not_finite}) {
        expect_attention({KvType::F16, 4, 2, 64, 48, 70, values}, random);
        expect_attention({KvType::F32, 4, 2, 64, 0, 20, values}, random);
    }
}

struct QkStoreCase {
    KvType type;
    uint32_t heads, kv_heads, dim, window, position;  // the ring has wrapped
    bool rope;
};

void expect_qk_store(const QkStoreCase& c, std::mt19937& random) {
    constexpr float kEps = 1e-5f;
    const KvType type = c.type;
    const uint32_t heads = c.heads, kv_heads = c.kv_heads, dim = c.dim;
    const uint32_t window = c.window, position = c.position;
    const bool rope = c.rope;
    const Cache cache = make_cache(type, kv_heads, dim, window, position, random);
    const auto q = random_floats(heads * dim, random);
    const auto k = random_floats(cache.width(), random);
    const auto v = random_floats(cache.width(), random);
    const auto q_weight = random_floats(dim, random);
    const auto k_weight = random_floats(dim, random);
    const auto cos = random_floats(dim / 2, random);
    const auto sin = random_floats(dim / 2, random);
    const auto norm = [&](const std::vector<float>& x, const std::vector<float>& w) {
        std::vector<float> out(x.size());
        for (size_t h = 0; h < x.size(); h += dim) {
            contract::rms_norm(&x[h], w.data(), dim, kEps, &out[h]);
            if (rope) contract::rope(&out[h], cos.data(), sin.data(), dim / 2);
        }
        return out;
    };
    const KvView view = cache.kv_view();
    const auto expected_q = norm(q, q_weight);
    auto plane_k = cache.k;
    auto plane_v = cache.v;
    cache.put(plane_k, view.write_row, norm(k, k_weight).data());
    cache.put(plane_v, view.write_row, v.data());
    const auto row = static_cast<ptrdiff_t>(view.write_row * cache.row_bytes());
    const auto bytes = static_cast<ptrdiff_t>(cache.row_bytes());
    const std::vector<uint8_t> kept_k(cache.k.begin() + row, cache.k.begin() + row + bytes);
    const std::vector<uint8_t> kept_v(cache.v.begin() + row, cache.v.begin() + row + bytes);
    const std::string kernel = "qk_norm_rope_store_" + std::string(cache.name());
    expect_kernels([&](Recording& r) {
        Machine& m = r.machine();
        const auto to_q = m.upload(q);
        const auto to_k = m.upload(cache.k);
        const auto to_v = m.upload(cache.v);
        const auto journal_k = m.blank(cache.row_bytes());
        const auto journal_v = m.blank(cache.row_bytes());
        const auto stored = [&](uint32_t argument, const BufferRef& plane) {
            return rows_use(argument, plane, Access::read_write, cache,
                            view_word(cache, offsetof(KvView, write_row)), RowRule::kConstant);
        };
        r.dispatch(
            kernel, QkStoreArgs{heads, kv_heads, dim, cache.view(), 1, rope ? 1u : 0u, kEps},
            heads + 2 * kv_heads, 1,
            {step_use(kernel, m.upload(cache.step(0, cos.data(), sin.data())),
                      {.view = cache.view(), .head_dim = dim, .journal = true, .rope = rope}),
             reads(2, m.upload(q_weight)), reads(3, m.upload(k_weight)), updates(4, to_q),
             reads(5, m.upload(k)), reads(6, m.upload(v)), stored(7, to_k), stored(8, to_v),
             writes(9, journal_k), writes(10, journal_v)});
        r.expect(to_q, expected_q, "q");
        r.expect_bits(to_k, plane_k, "K");
        r.expect_bits(to_v, plane_v, "V");
        r.expect_bits(journal_k, kept_k, "journal K");
        r.expect_bits(journal_v, kept_v, "journal V");
    });
}

TEST(QkStore, IsNormRopeAndStoreInOne) {
    std::mt19937 random(35);
    for (const KvType type : {KvType::F16, KvType::F32}) {
        for (const uint32_t dim : {64u, 256u}) {
            for (const bool rope : {false, true}) {
                expect_qk_store({type, 6, 2, dim, 16, 40, rope}, random);
            }
        }
    }
}

// Any shape that the engine takes: head_dim a multiple of 8 up to 256.
TEST(Attention, SweepRandomShapes) {
    std::mt19937 random(36);
    const auto pick = [&](uint32_t from, uint32_t to) { return from + random() % (to - from + 1); };
    for (int i = 0; i < 150; ++i) {
        const KvType type = random() % 2 == 0 ? KvType::F16 : KvType::F32;
        const uint32_t kv_heads = pick(1, 4);
        const uint32_t heads = kv_heads * pick(1, 8);
        const uint32_t dim = 8 * pick(1, 32);
        const uint32_t window = random() % 2 == 0 ? 0 : pick(1, 150);
        const uint32_t position = pick(0, 300);
        SCOPED_TRACE("case " + std::to_string(i) + ": " + std::to_string(heads) + ":" +
                     std::to_string(kv_heads) + " heads of " + std::to_string(dim) + ", window " +
                     std::to_string(window) + ", position " + std::to_string(position));
        constexpr Values kKinds[] = {Values::ordinary, Values::ordinary, Values::sparse,
                                     Values::not_finite};
        expect_attention({type, heads, kv_heads, dim, window, position, kKinds[random() % 4]},
                         random);
        expect_qk_store({type, heads, kv_heads, dim, std::max(window, 1u),
                         std::max(window, 1u) + position, random() % 2 == 0},
                        random);
        if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace muser::emulator_test
