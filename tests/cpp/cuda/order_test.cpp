// The order read off a recording: what each dispatch follows, against reachability worked out from
// the commands one pair at a time.
#include "device/cuda/order.h"

#include <gtest/gtest.h>

#include <random>

namespace muser::device::cuda {
namespace {

class Recording {
  public:
    explicit Recording(size_t buffers) {
        for (size_t i = 0; i < buffers; ++i) {
            auto buffer = std::make_shared<stream::Buffer>();
            buffer->id = i;
            buffers_.push_back(std::move(buffer));
        }
    }
    Recording& encoder(bool concurrent) {
        close();
        commands.encoders.push_back(
            {concurrent, static_cast<uint32_t>(commands.commands.size()), 0});
        return *this;
    }
    Recording& dispatch(const std::vector<size_t>& touched) {
        stream::Dispatch d;
        d.first_binding = static_cast<uint32_t>(commands.bindings.size());
        d.binding_count = static_cast<uint32_t>(touched.size());
        for (size_t i = 0; i < touched.size(); ++i) {
            commands.bindings.push_back({static_cast<uint32_t>(i + 1), buffers_[touched[i]], 0});
        }
        add(stream::Command::Kind::dispatch, commands.dispatches.size());
        commands.dispatches.push_back(d);
        return *this;
    }
    Recording& barrier() {
        add(stream::Command::Kind::barrier, commands.barriers.size());
        commands.barriers.push_back({true, 0, 0, 0});
        return *this;
    }
    Recording& barrier(const std::vector<size_t>& on) {
        add(stream::Command::Kind::barrier, commands.barriers.size());
        commands.barriers.push_back({false, static_cast<uint32_t>(commands.resources.size()),
                                     static_cast<uint32_t>(on.size()), 0});
        for (const size_t b : on) commands.resources.push_back(buffers_[b]);
        return *this;
    }
    const stream::CommandBuffer& done() {
        close();
        return commands;
    }
    stream::CommandBuffer commands;

  private:
    void add(stream::Command::Kind kind, size_t index) {
        commands.commands.push_back({kind, static_cast<uint32_t>(index)});
    }
    void close() {
        if (commands.encoders.empty()) return;
        auto& last = commands.encoders.back();
        last.command_count = static_cast<uint32_t>(commands.commands.size()) - last.first_command;
    }
    std::vector<stream::BufferRef> buffers_;
};

using Matrix = std::vector<std::vector<bool>>;

void close_over(Matrix& reach) {
    for (size_t k = 0; k < reach.size(); ++k) {
        for (size_t i = 0; i < reach.size(); ++i) {
            if (!reach[i][k]) continue;
            for (size_t j = 0; j < reach.size(); ++j) reach[i][j] = reach[i][j] || reach[k][j];
        }
    }
}

Matrix reached(const Order& order) {
    Matrix reach(order.after.size(), std::vector<bool>(order.after.size()));
    for (size_t d = 0; d < order.after.size(); ++d) {
        for (const uint32_t before : order.after[d]) reach[d][before] = true;
    }
    close_over(reach);
    return reach;
}

bool touches(const stream::CommandBuffer& c, uint32_t dispatch, const stream::Barrier& barrier) {
    for (uint32_t i = 0; i < c.dispatches[dispatch].binding_count; ++i) {
        for (uint32_t r = 0; r < barrier.resource_count; ++r) {
            if (c.bindings[c.dispatches[dispatch].first_binding + i].buffer ==
                c.resources[barrier.first_resource + r]) {
                return true;
            }
        }
    }
    return false;
}

// Every pair of dispatches by itself: is there an encoder's end, a serial encoder, or a barrier
// that covers both, between them?
Matrix by_pairs(const stream::CommandBuffer& c) {
    Matrix reach(c.dispatches.size(), std::vector<bool>(c.dispatches.size()));
    std::vector<std::pair<size_t, size_t>> where(c.dispatches.size());  // encoder, command
    for (size_t e = 0; e < c.encoders.size(); ++e) {
        for (uint32_t i = 0; i < c.encoders[e].command_count; ++i) {
            const auto& command = c.commands[c.encoders[e].first_command + i];
            if (command.kind == stream::Command::Kind::dispatch) where[command.index] = {e, i};
        }
    }
    for (uint32_t later = 0; later < c.dispatches.size(); ++later) {
        for (uint32_t earlier = 0; earlier < later; ++earlier) {
            const auto [e, last] = where[later];
            bool ordered = where[earlier].first != e || !c.encoders[e].concurrent;
            for (size_t i = where[earlier].second; !ordered && i < last; ++i) {
                const auto& command = c.commands[c.encoders[e].first_command + i];
                if (command.kind != stream::Command::Kind::barrier) continue;
                const stream::Barrier& barrier = c.barriers[command.index];
                ordered = barrier.all_buffers ||
                          (touches(c, earlier, barrier) && touches(c, later, barrier));
            }
            reach[later][earlier] = ordered;
        }
    }
    close_over(reach);
    return reach;
}

TEST(Order, ConcurrentDispatchesAreIndependent) {
    Recording r(2);
    r.encoder(true).dispatch({0}).dispatch({0});
    const Order order = order_of(r.done());
    EXPECT_EQ(order.edges(), 0u);
}

TEST(Order, ABarrierJoinsEpochs) {
    Recording r(1);
    r.encoder(true).dispatch({0}).dispatch({0}).barrier().dispatch({0}).dispatch({0}).barrier();
    r.dispatch({0});
    const Order order = order_of(r.done());
    const std::vector<std::vector<uint32_t>> expected{{}, {}, {0, 1}, {0, 1}, {2, 3}};
    EXPECT_EQ(order.after, expected);
}

TEST(Order, ATargetedBarrierOrdersOnlyWhatTouchesItsResources) {
    Recording r(3);
    r.encoder(true).dispatch({0}).dispatch({1}).barrier({0}).dispatch({0}).dispatch({1});
    const Order order = order_of(r.done());
    const std::vector<std::vector<uint32_t>> expected{{}, {}, {0}, {}};
    EXPECT_EQ(order.after, expected);
}

TEST(Order, SerialEncodersAndEncodersInTurnAreChains) {
    Recording r(1);
    r.encoder(false).dispatch({0}).dispatch({0}).encoder(true).dispatch({0}).dispatch({0});
    const Order order = order_of(r.done());
    const std::vector<std::vector<uint32_t>> expected{{}, {0}, {1}, {1}};
    EXPECT_EQ(order.after, expected);
}

TEST(Order, RandomRecordingsReachWhatTheirBarriersSay) {
    std::mt19937 random(7);
    for (int round = 0; round < 400; ++round) {
        Recording r(4);
        const auto some = [&] {
            std::vector<size_t> out;
            for (size_t b = 0; b < 4; ++b) {
                if (random() % 3 == 0) out.push_back(b);
            }
            if (out.empty()) out.push_back(random() % 4);
            return out;
        };
        for (int e = 0; e < 3; ++e) {
            r.encoder(random() % 3 != 0);
            for (int i = 0; i < 8; ++i) {
                switch (random() % 5) {
                    case 0:
                        r.barrier();
                        break;
                    case 1:
                        r.barrier(some());
                        break;
                    default:
                        r.dispatch(some());
                }
            }
        }
        const stream::CommandBuffer& commands = r.done();
        ASSERT_EQ(reached(order_of(commands)), by_pairs(commands)) << "round " << round;
    }
}

// Merges whatever it may; `turns` says how many dispatches each could begin a launch of.
std::vector<Launch> launches(Recording& r, std::vector<uint32_t> turns = {}) {
    return launches_of(
        order_of(r.done()), [](const std::vector<uint32_t>&, uint32_t) { return true; },
        [&](uint32_t d) { return d < turns.size() ? turns[d] : 1; });
}

TEST(Launches, MergeWhatFollowsTheSame) {
    Recording r(1);
    r.encoder(true).dispatch({0}).barrier().dispatch({0}).dispatch({0}).dispatch({0}).barrier();
    r.dispatch({0});
    const auto found = launches(r);
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[1].dispatches, (std::vector<uint32_t>{1, 2, 3}));
    EXPECT_EQ(found[1].after, (std::vector<uint32_t>{0}));
    EXPECT_EQ(found[2].after, (std::vector<uint32_t>{1}));
}

TEST(Launches, NeverMergeWhatIsOrdered) {
    Recording r(1);
    r.encoder(false).dispatch({0}).dispatch({0}).dispatch({0});
    const auto found = launches(r);
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[2].after, (std::vector<uint32_t>{1}));
}

TEST(Launches, KeepAChainTogetherThatKernelsCanRunInTurn) {
    Recording r(1);
    r.encoder(false).dispatch({0}).dispatch({0}).dispatch({0}).dispatch({0}).dispatch({0});
    const auto found = launches(r, {1, 3});
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[1].dispatches, (std::vector<uint32_t>{1, 2, 3}));
    EXPECT_EQ(found[1].after, (std::vector<uint32_t>{0}));
    EXPECT_EQ(found[2].dispatches, (std::vector<uint32_t>{4}));
    EXPECT_EQ(found[2].after, (std::vector<uint32_t>{1}));
}

// A barrier that is missing between two of them, or one too many dispatches in front: no chain.
TEST(Launches, LeaveApartWhatIsNoChain) {
    Recording r(1);
    r.encoder(true).dispatch({0}).barrier().dispatch({0}).dispatch({0}).barrier().dispatch({0});
    const auto found = launches_of(
        order_of(r.done()), [](const std::vector<uint32_t>&, uint32_t) { return false; },
        [](uint32_t d) { return d == 1   ? 3u
                                : d == 2 ? 2u
                                         : 1u; });
    ASSERT_EQ(found.size(), 4u);
    EXPECT_EQ(found[3].after, (std::vector<uint32_t>{1, 2}));
}

// A norm, four products of which the last is the gate's, attention in three dispatches, a product.
void record_attention(Recording& r) {
    r.encoder(true).dispatch({0}).barrier();
    r.dispatch({0}).dispatch({0}).dispatch({0}).dispatch({0}).barrier();
    r.dispatch({0}).barrier().dispatch({0}).barrier().dispatch({0}).barrier();
    r.dispatch({0});
}

TEST(Launches, PartTheProductThatOnlyTheEndOfAttentionNeeds) {
    Recording r(1);
    record_attention(r);
    auto found = launches(r, {1, 1, 1, 1, 1, 3});
    ASSERT_EQ(found.size(), 4u);
    part_products(found, [](uint32_t d, uint32_t attention) {
        EXPECT_EQ(attention, 5u);
        return d == 4;
    });
    ASSERT_EQ(found.size(), 5u);
    EXPECT_EQ(found[1].dispatches, (std::vector<uint32_t>{1, 2, 3}));
    EXPECT_TRUE(found[1].counted);
    EXPECT_EQ(found[1].attention, 5u);
    EXPECT_EQ(found[2].dispatches, (std::vector<uint32_t>{4}));
    EXPECT_EQ(found[2].after, (std::vector<uint32_t>{1}));
    EXPECT_TRUE(found[2].beside_attention);
    EXPECT_EQ(found[3].after, (std::vector<uint32_t>{2}));
    EXPECT_TRUE(found[3].counts_products);
    EXPECT_EQ(found[4].after, (std::vector<uint32_t>{3}));
    EXPECT_FALSE(found[0].counted || found[4].counted || found[4].counts_products);
}

TEST(Launches, PartNothingWithoutAReason) {
    const auto unmoved = [](const std::vector<Launch>& all) {
        for (const Launch& launch : all) {
            EXPECT_FALSE(launch.counted || launch.beside_attention || launch.counts_products);
        }
        return all.size() == 4;
    };
    Recording r(1);
    record_attention(r);
    auto none = launches(r, {1, 1, 1, 1, 1, 3});
    part_products(none, [](uint32_t, uint32_t) { return false; });
    EXPECT_TRUE(unmoved(none));
    auto every = launches(r, {1, 1, 1, 1, 1, 3});
    part_products(every, [](uint32_t, uint32_t) { return true; });
    EXPECT_TRUE(unmoved(every));
    EXPECT_EQ(every[1].dispatches, (std::vector<uint32_t>{1, 2, 3, 4}));
    // Something else follows the products, too.
    auto shared = launches(r, {1, 1, 1, 1, 1, 3});
    shared[3].after.insert(shared[3].after.begin(), 1);
    part_products(shared, [](uint32_t d, uint32_t) { return d == 4; });
    EXPECT_TRUE(unmoved(shared));
}

}  // namespace
}  // namespace muser::device::cuda
