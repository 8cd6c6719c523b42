// What the repetitions of a profiled stage read: other matrices of the same shape, and none again
// before so much else was read that no cache still holds it. The last run is the stage's own.
#include "metal/spare_weights.h"

#include <gtest/gtest.h>

#include <map>

#include "errors.h"
#include "metal/launch/product.h"

namespace muser {
namespace {

constexpr uint32_t kRows = 64, kCols = 256;
constexpr uint64_t kBytes = uint64_t{kRows} * kCols * 4;

ContextOptions one_thread(std::map<std::string, int> faults) {
    ContextOptions out;
    out.options.threads = 1;
    out.faults = std::move(faults);
    return out;
}

struct Machine {
    explicit Machine(std::map<std::string, int> faults = {})
        : context(one_thread(std::move(faults))) {}
    Context context;

    // Weight number n holds n everywhere.
    DeviceWeight weight(int n, uint32_t rows = kRows) {
        DeviceWeight out;
        out.rows = rows;
        out.cols = kCols;
        out.bytes = uint64_t{rows} * kCols * 4;
        out.offset = 64;
        out.type_name = "f32";
        out.buffer =
            context.make_buffer("w" + std::to_string(n), out.offset + out.bytes, Placement::device);
        const std::vector<float> values(out.bytes / 4, static_cast<float>(n));
        context.write(out.buffer, out.offset, values.data(), out.bytes);
        return out;
    }
    std::vector<float> values(const DeviceWeight& weight) {
        std::vector<float> out(weight.bytes / 4);
        context.read(weight.buffer, weight.offset, out.data(), weight.bytes);
        return out;
    }
};

std::vector<const DeviceWeight*> pointers(const std::deque<DeviceWeight>& weights) {
    std::vector<const DeviceWeight*> out;
    for (const DeviceWeight& weight : weights) out.push_back(&weight);
    return out;
}

TEST(SpareWeights, AreCopiesOfTheStagesOwn) {
    Machine machine;
    std::deque<DeviceWeight> layers;
    for (int i = 0; i < 3; ++i) layers.push_back(machine.weight(i));
    SpareWeights spares;
    spares.prepare(machine.context, pointers(layers), 2);
    EXPECT_EQ(spares.bytes(), 6 * kBytes);
    for (int use = 0; use < 6; ++use) {
        const DeviceWeight& spare = spares.next(layers[static_cast<size_t>(use) / 2]);
        EXPECT_EQ(machine.values(spare), machine.values(layers[static_cast<size_t>(use) % 3]));
        for (const DeviceWeight& own : layers) {
            EXPECT_NE(spare.buffer.object.get(), own.buffer.object.get());
        }
    }
}

// A stage of two kinds of matrices (as qkvg is), over layers: from one read of a copy to the next,
// `cold` bytes are read.
TEST(SpareWeights, ComeAgainColdOnly) {
    Machine machine;
    std::deque<DeviceWeight> stage;
    for (int layer = 0; layer < 8; ++layer) {
        stage.push_back(machine.weight(layer));
        stage.push_back(machine.weight(layer, kRows / 4));
    }
    constexpr uint64_t kCold = 5 * kBytes;
    SpareWeights spares(kCold);
    spares.prepare(machine.context, pointers(stage), 7);
    EXPECT_LE(spares.bytes(), kCold + 2 * kBytes);
    std::map<const DeviceWeight*, uint64_t> read_at;
    uint64_t read = 0;
    for (size_t run = 0; run < 8 * 7; ++run) {
        for (size_t i = 0; i < 2; ++i) {
            const DeviceWeight& own = stage[run / 7 * 2 + i];
            const DeviceWeight& spare = spares.next(own);
            EXPECT_EQ(spare.bytes, own.bytes);
            read += spare.bytes;
            const auto last = read_at.find(&spare);
            if (last != read_at.end()) {
                EXPECT_GE(read - last->second, kCold);
            }
            read_at[&spare] = read;
        }
    }
    EXPECT_EQ(read_at.size(), 8U) << "four copies of each kind";
}

TEST(SpareWeights, ServeMoreRepetitionsLaterAndStayWhereTheyAre) {
    Machine machine;
    std::deque<DeviceWeight> layers;
    for (int i = 0; i < 2; ++i) layers.push_back(machine.weight(i));
    SpareWeights spares;
    spares.prepare(machine.context, pointers(layers), 0);
    EXPECT_EQ(spares.bytes(), 0U);
    spares.prepare(machine.context, pointers(layers), 1);
    EXPECT_EQ(spares.bytes(), 2 * kBytes);
    const DeviceWeight* first = &spares.next(layers[0]);
    spares.prepare(machine.context, pointers(layers), 3);
    EXPECT_EQ(spares.bytes(), 6 * kBytes);
    spares.prepare(machine.context, pointers(layers), 2);
    EXPECT_EQ(spares.bytes(), 6 * kBytes);
    spares.rewind();
    EXPECT_EQ(&spares.next(layers[0]), first);
}

TEST(SpareWeights, ServeOnAfterMemoryRanOut) {
    // Two allocations of the probe, two of the layers; the second copy finds no memory.
    Machine machine({{"device_refuse_allocation", 6}});
    std::deque<DeviceWeight> layers;
    for (int i = 0; i < 2; ++i) layers.push_back(machine.weight(i));
    SpareWeights spares;
    EXPECT_THROW(spares.prepare(machine.context, pointers(layers), 2), DeviceMemoryError);
    EXPECT_EQ(spares.bytes(), kBytes);
    spares.prepare(machine.context, pointers(layers), 2);
    EXPECT_EQ(spares.bytes(), 4 * kBytes);
    EXPECT_EQ(machine.values(spares.next(layers[0])), machine.values(layers[0]));
    EXPECT_EQ(machine.values(spares.next(layers[0])), machine.values(layers[1]));
}

TEST(SpareWeights, AMatrixThatEmptiesTheCachesIsReadAgain) {
    Machine machine;
    const DeviceWeight head = machine.weight(1);
    SpareWeights spares(kBytes);
    spares.prepare(machine.context, {&head}, 7);
    EXPECT_EQ(spares.bytes(), 0U);
    EXPECT_EQ(&spares.next(head), &head);
}

TEST(SpareWeights, AreNotInventedForAShapeThatHasNone) {
    Machine machine;
    const DeviceWeight weight = machine.weight(1), other = machine.weight(2, kRows / 2);
    SpareWeights spares;
    spares.prepare(machine.context, {&weight}, 1);
    EXPECT_THROW(spares.next(other), ConfigError);
}

TEST(SpareWeights, OnlyRepetitionsReadThemAndTheStageRunsLast) {
    Machine machine;
    std::deque<DeviceWeight> layers;
    for (int i = 1; i < 3; ++i) layers.push_back(machine.weight(i));
    SpareWeights spares;
    spares.prepare(machine.context, pointers(layers), 2);
    const Buffer x = machine.context.make_buffer("x", kCols * 4, Placement::device);
    const Buffer y = machine.context.make_buffer("y", kRows * 4, Placement::device);
    const std::vector<float> ones(kCols, 1.0F);
    machine.context.write(x, 0, ones.data(), kCols * 4);

    AutoreleaseScope scope;
    EncodeLog log;
    GraphEncoder::Options options;
    options.log = &log;
    options.repeat = {{Stage::ffn_down, 3}};
    options.spares = &spares;
    GraphEncoder g(machine.context, options);
    id<MTLCommandBuffer> commands = [machine.context.queue() commandBuffer];
    g.begin(commands);
    const launch::Vector in{&x, nullptr, kCols}, out{&y, nullptr, kRows};
    for (int layer = 0; layer < 2; ++layer) {
        const DeviceWeight& own = layers[static_cast<size_t>(layer)];
        g.closure({Stage::output, layer}, [&] { launch::mul_mv(g, own, in, out); });
        g.closure({Stage::ffn_down, layer}, [&] { launch::mul_mv(g, own, in, out); });
    }
    g.end();
    [commands commit];
    [commands waitUntilCompleted];

    std::vector<std::string> read;
    for (const EncodedDispatch& dispatch : log.dispatches) {
        read.push_back(dispatch.arguments.front().buffer->label);
    }
    EXPECT_EQ(read, (std::vector<std::string>{"w1", "spare of w1", "spare of w2", "w1",  //
                                              "w2", "spare of w1", "spare of w2", "w2"}));
    std::vector<float> result(kRows);
    machine.context.read(y, 0, result.data(), kRows * 4);
    EXPECT_EQ(result, std::vector<float>(kRows, 2.0F * kCols));
}

}  // namespace
}  // namespace muser
