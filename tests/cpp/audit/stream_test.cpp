// From command streams to traces: ranges that depend on step values, and the names of arguments.
#include <gtest/gtest.h>

#include "audit/checker.h"
#include "audit/from_stream.h"
#include "errors.h"
#include "metal/kernels/launch_shapes.h"
#include "metal/recording.h"

namespace muser::audit {
namespace {

struct Stream {
    stream::CommandBuffer commands;
    std::shared_ptr<stream::Kernel> kernel = std::make_shared<stream::Kernel>();
    stream::BufferRef steps = buffer(1, 1024), plane = buffer(2, 1000);

    static stream::BufferRef buffer(uint64_t id, uint64_t length) {
        auto made = std::make_shared<stream::Buffer>();
        made->id = made->allocation = id;
        made->length = length;
        return made;
    }
    Stream() {
        kernel->name = "attend_chunks_f16";
        commands.labels = {"blk.7.attention"};
        commands.bindings = {{1, steps, 256}, {3, plane, 100}};
    }
    // One dispatch that reads rows of `plane`, named by words 5 and 6 of the slot.
    Trace make(uint32_t first, uint32_t count, uint32_t capacity) {
        stream::RowRule rule{true, 1, 5, 6, capacity, 10};
        commands.accesses = {{3, stream::Access::read, 0, uint64_t{10} * capacity, rule}};
        stream::Dispatch dispatch;
        dispatch.kernel = kernel;
        dispatch.binding_count = 2;
        dispatch.access_count = 1;
        commands.dispatches = {dispatch};
        commands.commands = {{stream::Command::Kind::dispatch, 0}};
        commands.encoders = {{true, 0, 1}};
        StreamTrace trace({[](const std::string& name, uint32_t argument) {
                               return std::string(argument_names(name).at(argument - 1));
                           },
                           [](const std::string& label) { return layer_of(label); }});
        trace.commit(commands, [&](const stream::Binding& slot, uint32_t word) {
            EXPECT_EQ(slot.offset, 256u);
            return word == 5 ? first : count;
        });
        return trace.take();
    }
};

TEST(FromStream, RowsOfARing) {
    const Trace straight = Stream().make(3, 4, 16);
    ASSERT_EQ(straight.dispatches.size(), 1u);
    const Dispatch& dispatch = straight.dispatches[0];
    EXPECT_EQ(dispatch.label, "blk.7.attention");
    EXPECT_EQ(dispatch.layer, 7);
    ASSERT_EQ(dispatch.uses.size(), 1u);
    EXPECT_EQ(dispatch.uses[0].offset, 130u);
    EXPECT_EQ(dispatch.uses[0].length, 40u);
    EXPECT_EQ(dispatch.uses[0].argument, "K");

    const Trace wrapped = Stream().make(14, 5, 16);
    ASSERT_EQ(wrapped.dispatches[0].uses.size(), 2u);
    EXPECT_EQ(wrapped.dispatches[0].uses[0].offset, 240u);
    EXPECT_EQ(wrapped.dispatches[0].uses[0].length, 20u);
    EXPECT_EQ(wrapped.dispatches[0].uses[1].offset, 100u);
    EXPECT_EQ(wrapped.dispatches[0].uses[1].length, 30u);

    EXPECT_TRUE(Stream().make(3, 0, 16).dispatches[0].uses.empty());
    EXPECT_THROW(Stream().make(17, 1, 16), DeviceError);
    EXPECT_THROW(Stream().make(0, 17, 16), DeviceError);
}

TEST(FromStream, EveryKernelHasNamesForItsArguments) {
    for (const kernels::KernelShape& shape : kernels::kKernelShapes) {
        EXPECT_EQ(argument_names(shape.name).size(), shape.buffers) << shape.name;
        EXPECT_EQ(argument_accesses(shape.name).size(), shape.buffers) << shape.name;
    }
}

TEST(FromStream, LayerOfALabel) {
    EXPECT_EQ(layer_of("blk.12.attention"), 12);
    EXPECT_EQ(layer_of("lm_head"), -1);
    EXPECT_EQ(layer_of("blk.x"), -1);
}

}  // namespace
}  // namespace muser::audit
