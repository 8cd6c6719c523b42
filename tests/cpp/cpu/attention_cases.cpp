// Attention kernels against the contract: planes, rotated rings, partly visible chunks.
#include <gtest/gtest.h>

#include <algorithm>

#include "contract/attention.h"
#include "contract/f32.h"
#include "contract/pointwise.h"
#include "support.h"

namespace muser::cpu_test {
namespace {

using contract::KvType;
using device::cpu::KernelImpl;

// One query over one plane.
struct Scene {
    AttendArgs args = {};
    StepValues step = {};
    const KvView* view = nullptr;
};

void make_scene(Scene& s, Random& random, bool blocks) {
    const uint32_t kv_heads = random.pick({1u, 2u, 3u});
    const uint32_t group = random.pick({1u, 2u, 5u, 16u, 17u});
    s.args.heads = kv_heads * group;
    s.args.kv_heads = kv_heads;
    s.args.head_dim = random.pick({16u, 32u, 64u, 72u, 128u, 128u, 256u});
    s.args.view = random.below(3);
    s.args.scale = contract::attention_scale(s.args.head_dim);
    if (blocks && s.args.heads * s.args.head_dim % MUSER_BLOCK == 0) {
        s.args.blocks = s.args.heads * s.args.head_dim / MUSER_BLOCK;
    }
    KvView& view = s.args.view == MUSER_VIEW_RING    ? s.step.ring
                   : s.args.view == MUSER_VIEW_PLANE ? s.step.plane
                                                     : s.step.shadow;
    view.count = random.between(1, 200);
    s.args.capacity = view.count + random.pick({0u, 0u, 1u, 30u});
    view.first_position = random.pick({0u, 1u, 63u, 64u, 65u, 100u, 2048u, 131000u});
    view.first_row = random.one_in(3) ? 0 : random.below(s.args.capacity);
    view.older = view.count - 1;
    view.write_row = (view.first_row + view.older) % s.args.capacity;
    view.chunks = (view.first_position + view.count - 1) / MUSER_CHUNK -
                  view.first_position / MUSER_CHUNK + 1;
    s.view = &view;
}

template <class Element>
contract::KvRows rows_of(const Scene& s, const std::vector<Element>& plane, uint32_t kv_head) {
    contract::KvRows rows;
    rows.data = plane.data() + size_t{kv_head} * s.args.head_dim;
    rows.type = sizeof(Element) == 2 ? KvType::F16 : KvType::F32;
    rows.row_stride = size_t{s.args.kv_heads} * s.args.head_dim;
    rows.capacity = s.args.capacity;
    rows.origin_logical = s.view->first_position;
    rows.origin_physical = s.view->first_row;
    return rows;
}

std::vector<float> plane_data(Random& random, size_t n, Data data, float) {
    return floats(random, n, data);
}
std::vector<uint16_t> plane_data(Random& random, size_t n, Data data, uint16_t) {
    return halves(random, n, data);
}

template <class Element>
void check_chunks(const KernelImpl& kernel, Random& random, Data data) {
    Scene s;
    make_scene(s, random, false);
    const uint32_t dim = s.args.head_dim;
    const size_t cells = size_t{s.args.capacity} * s.args.kv_heads * dim;
    auto q = floats(random, size_t{s.args.heads} * dim, data);
    const auto k = plane_data(random, cells, data, Element{});
    const auto v = plane_data(random, cells, data, Element{});
    if (random.one_in(8)) std::fill(q.begin(), q.end(), -0.0f);  // every score is a zero
    const size_t row = 2 + size_t{dim};
    Launch launch(kernel, s.args);
    launch.step(s.step).with(2, q).with(3, k).with(4, v);
    launch.with(5, std::vector<float>(s.view->chunks * s.args.heads * row)).run(random);

    std::vector<float> expected(s.view->chunks * s.args.heads * row);
    const int64_t first = s.view->first_position;
    const int64_t end = first + s.view->count;
    for (uint32_t c = 0; c < s.view->chunks; ++c) {
        const int64_t chunk = first / MUSER_CHUNK + c;
        for (uint32_t h = 0; h < s.args.heads; ++h) {
            const uint32_t kv_head = h / (s.args.heads / s.args.kv_heads);
            float* to = &expected[(c * s.args.heads + h) * row];
            const contract::ChunkState state = contract::attention_chunk(
                &q[size_t{h} * dim], rows_of(s, k, kv_head), rows_of(s, v, kv_head), chunk,
                std::max(first, chunk * MUSER_CHUNK), std::min(end, (chunk + 1) * MUSER_CHUNK), dim,
                s.args.scale, to + 2);
            to[0] = state.m;
            to[1] = state.l;
        }
    }
    expect_same(launch.result<float>(5), expected, "partials");
}

// Chunk partials as attention leaves them, and what they combine to.
struct Partials {
    std::vector<float> data;
    std::vector<float> combined;
};

Partials make_partials(const Scene& s, Random& random, Data data) {
    const uint32_t dim = s.args.head_dim;
    const size_t row = 2 + size_t{dim};
    Partials p;
    p.data = floats(random, s.view->chunks * s.args.heads * row, data);
    p.combined.resize(size_t{s.args.heads} * dim);
    for (uint32_t h = 0; h < s.args.heads; ++h) {
        std::vector<contract::ChunkState> states;
        std::vector<float> o;
        for (uint32_t c = 0; c < s.view->chunks; ++c) {
            float* part = &p.data[(c * s.args.heads + h) * row];
            if (data == Data::plain) part[1] = part[1] * part[1] + 1.0f;
            states.push_back({part[0], part[1]});
            o.insert(o.end(), part + 2, part + row);
        }
        contract::attention_combine(states.data(), o.data(), states.size(), dim,
                                    &p.combined[size_t{h} * dim]);
    }
    return p;
}

void check_combine(const KernelImpl& kernel, Random& random, Data data) {
    Scene s;
    make_scene(s, random, false);
    const Partials p = make_partials(s, random, data);
    Launch launch(kernel, s.args);
    launch.step(s.step).with(2, p.data).with(3, std::vector<float>(p.combined.size()));
    launch.run(random);
    expect_same(launch.result<float>(3), p.combined, "attention");
}

void check_combine_gate(const KernelImpl& kernel, Random& random, Data data) {
    Scene s;
    make_scene(s, random, true);
    Partials p = make_partials(s, random, data);
    const size_t n = p.combined.size();
    const auto gate = floats(random, n, data);
    Launch launch(kernel, s.args);
    launch.step(s.step).with(2, p.data).with(3, gate).with(4, std::vector<float>(n));
    launch.with(5, empty_form(n)).run(random);
    contract::sigmoid_gate(p.combined.data(), gate.data(), n, p.combined.data());
    expect_same(launch.result<float>(4), p.combined, "attention");
    if (s.args.blocks != 0) expect_block_form(launch, 5, p.combined);
}

}  // namespace

void add_attention_checks(Checks& checks) {
    checks["attend_chunks_f16"] = check_chunks<uint16_t>;
    checks["attend_chunks_f32"] = check_chunks<float>;
    checks["attend_chunks_gqa_f16"] = check_chunks<uint16_t>;
    checks["attend_chunks_gqa_f32"] = check_chunks<float>;
    checks["attend_combine_f32"] = check_combine;
    checks["attend_combine_gate_b16"] = check_combine_gate;
}

}  // namespace muser::cpu_test
