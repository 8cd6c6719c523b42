// Closures and barriers on one compute encoder: the only place that dispatches kernels and the
// only place that places barriers, so both are counted exactly here.
#pragma once

#import <Metal/Metal.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/command_stream.h"
#include "metal/context.h"
#include "metal/kernels/launch_shapes.h"
#include "metal/kernels/step_reads.h"
#include "metal/stages.h"

namespace muser {

using stream::Access;
using stream::RowRule;

// One buffer argument of a dispatch and what the kernel does to it. An argument that is read in
// one range and written in another appears twice.
struct Argument {
    uint32_t index;
    const Buffer* buffer;
    uint64_t offset;
    Access access;
    uint64_t length;
    RowRule rows = {};
    // Set for a step slot: the kernel reads these of its words, not all of it.
    std::optional<kernels::StepReadFacts> step = {};
    // Set for block forms of n elements each, one after the other: the padding between them is
    // nobody's.
    uint32_t forms_of = 0;
    // Not set where the kernel does not need a form's sums of 16. A device's own variant may read
    // them: the same kernel wrote them.
    bool sums = true;
};

enum class BarrierMode {
    hand,     // where this file and the graph say, and nowhere else
    planned,  // the fewest that the declared ranges need, computed before
    all,      // after every dispatch
    none,     // for the planner, which looks at such a recording and never runs it
};

class BarrierPlan;
class SpareWeights;

// What was encoded, for plans and profiles.
struct EncodedDispatch {
    uint32_t closure;
    std::string kernel;
    stream::Size3 groups;
    uint32_t threads;
    std::vector<Argument> arguments;
};
struct EncodeLog {
    std::vector<Label> closures;
    std::vector<EncodedDispatch> dispatches;
    uint32_t broad = 0, targeted = 0;
    // Each barrier in words: before which dispatch it stands, and why.
    struct Barrier {
        uint32_t before_dispatch;
        std::string site, hazard;
        std::vector<std::string> resources;  // empty: broad
    };
    std::vector<Barrier> barriers;
};

class GraphEncoder {
  public:
    struct Options {
        bool serial = false;
        BarrierMode mode = BarrierMode::hand;
        const BarrierPlan* plan = nullptr;  // required by `planned`
        bool untracked = false;             // buffers without tracking: ConfigError but `planned`
        EncodeLog* log = nullptr;
        // Runs a stage's kernels k times (profiling): measures its own time by the slope.
        std::vector<std::pair<Stage, int>> repeat;
        SpareWeights* spares = nullptr;  // required by `repeat`: what its repetitions read
        std::vector<uint32_t> omit;      // test switch: barriers left out, counted from 0
    };

    GraphEncoder(Context& context, Options options);

    // Encoding goes to this command buffer from here on. Ends the encoder before it, if any.
    void begin(id<MTLCommandBuffer> commands);
    void end();

    // Everything inside is independent, or ordered by a barrier that the body names. Every
    // closure of an encoder but the first has one broad barrier before it.
    template <class Body>
    void closure(Label label, Body&& body) {
        open_closure(label);
        // Repetitions come first and read other weights: what they write, the stage itself then
        // replaces.
        for (int i = repeats(label.stage); i > 1; --i) {
            repetition_ = true;
            body();
            repetition_ = false;
            broad_barrier("repeated for profiling");
        }
        body();
        close_closure(label);
    }

    // Inside a closure: what was encoded so far is ordered before what follows, for these buffers.
    void order(const BarrierSite& site, std::initializer_list<const Buffer*> buffers);

    template <class Args>
    void dispatch(std::string_view kernel, const Args& args, uint64_t units, uint32_t columns,
                  std::initializer_list<Argument> arguments) {
        encode(kernel, &args, sizeof args, units, columns, arguments);
    }

    // The matrix that a product reads: `own`, but in a repetition a spare of its shape.
    const DeviceWeight& weight(const DeviceWeight& own);

    // Called after each closure with the encoder ended, when a caller wants to look at a stage.
    std::function<void(Label)> after_closure;
    // True where `after_closure` wants to run: the command buffer is cut there.
    std::function<bool(Label)> stops_after;
    // Makes the next command buffer after a cut.
    std::function<id<MTLCommandBuffer>()> next_commands;

  private:
    void open_closure(Label label);
    void close_closure(Label label);
    void broad_barrier(std::string_view why);
    void targeted_barrier(std::string_view site, std::string_view hazard,
                          const std::vector<const Buffer*>& buffers);
    void planned_barrier();
    bool omitted();
    int repeats(Stage stage) const;
    void encode(std::string_view kernel, const void* args, size_t args_bytes, uint64_t units,
                uint32_t columns, std::initializer_list<Argument> arguments);
    NSString* label_object(Label label);

    Context& context_;
    Options options_;
    ObjcPtr<CommandBufferId> commands_;
    ObjcPtr<EncoderId> encoder_;
    bool first_closure_ = true;  // of this encoder
    bool repetition_ = false;
    bool barrier_pending_ = true;  // `all`: nothing was dispatched since the last barrier
    uint32_t ordinal_ = 0;         // of the next dispatch, over the whole token
    uint32_t closure_ = 0;
    uint32_t barriers_ = 0;  // placed or left out
    std::vector<std::pair<std::string, ObjcPtr<NSString*>>> labels_;
};

}  // namespace muser
