#import "metal/graph_encoder.h"

#include <algorithm>

#include "errors.h"
#import "metal/barrier_planner.h"
#import "metal/spare_weights.h"
#if !defined(__APPLE__)
#import "metal/portable/portable.h"
#endif

namespace muser {
namespace {

#if !defined(__APPLE__)
// The words of the step slot that a kernel reads, each a range of its own.
void declare_step_reads(std::string_view kernel, const Argument& argument,
                        std::vector<stream::DeclaredAccess>& accesses) {
    for (const kernels::StepRead& read : kernels::step_reads(kernel, *argument.step)) {
        stream::DeclaredAccess access{argument.index, Access::read, read.offset, read.bytes, {}};
        if (read.if_overwrite) {
            access.rows = {
                true, argument.index, RowRule::kConstant, offsetof(StepValues, overwrite) / 4,
                0,    read.bytes};
        }
        accesses.push_back(access);
    }
}

// Each block form by itself; without its sums: hi and lo, then the scales.
void declare_forms(const Argument& argument, std::vector<stream::DeclaredAccess>& accesses) {
    const uint64_t n = argument.forms_of;
    for (uint64_t at = 0; at < argument.length; at += MUSER_BLOCK_FORM_STRIDE(n)) {
        if (argument.sums) {
            accesses.push_back(
                {argument.index, argument.access, at, MUSER_BLOCK_FORM_BYTES(n), {}});
            continue;
        }
        accesses.push_back({argument.index, argument.access, at, MUSER_BLOCK_SUMS(n), {}});
        accesses.push_back({argument.index,
                            argument.access,
                            at + MUSER_BLOCK_SCALES(n),
                            MUSER_BLOCK_FORM_BYTES(n) - MUSER_BLOCK_SCALES(n),
                            {}});
    }
}
#endif

}  // namespace

GraphEncoder::GraphEncoder(Context& context, Options options)
    : context_(context), options_(std::move(options)) {
    const bool planned = options_.mode == BarrierMode::planned;
    if (planned && options_.plan == nullptr) {
        throw ConfigError("planned barriers need a plan", {{"barriers", "planned"}});
    }
    if (planned && !options_.repeat.empty()) {
        throw ConfigError("a barrier plan has no place for repeated kernels; use barriers='hand'",
                          {{"barriers", "planned"}});
    }
    // Only a recording that nobody runs, or one under the planner's proof, may do without tracking.
    if (options_.untracked && !planned && options_.mode != BarrierMode::none) {
        throw ConfigError("untracked buffers need barriers='planned'", {{"untracked", "1"}});
    }
}

void GraphEncoder::begin(id<MTLCommandBuffer> commands) {
    end();
    commands_ = ObjcPtr<CommandBufferId>::retain(commands);
    encoder_ = ObjcPtr<EncoderId>::retain([commands
        computeCommandEncoderWithDispatchType:options_.serial ? MTLDispatchTypeSerial
                                                              : MTLDispatchTypeConcurrent]);
    first_closure_ = true;
    barrier_pending_ = true;
}

void GraphEncoder::end() {
    if (!encoder_) return;
    [encoder_.get() endEncoding];
    encoder_ = {};
}

int GraphEncoder::repeats(Stage stage) const {
    for (const auto& [repeated, count] : options_.repeat) {
        if (repeated == stage) return count;
    }
    return 1;
}

const DeviceWeight& GraphEncoder::weight(const DeviceWeight& own) {
    return repetition_ ? options_.spares->next(own) : own;
}

NSString* GraphEncoder::label_object(Label label) {
    std::string text = label_text(label);
    for (const auto& [known, object] : labels_) {
        if (known == text) return object.get();
    }
    auto object = ObjcPtr<NSString*>::adopt([[NSString alloc] initWithUTF8String:text.c_str()]);
    labels_.emplace_back(std::move(text), object);
    return object.get();
}

void GraphEncoder::open_closure(Label label) {
    if (!first_closure_ && options_.mode == BarrierMode::hand) {
        broad_barrier(kStages[static_cast<size_t>(label.stage)].barrier);
    }
    first_closure_ = false;
    if (options_.log != nullptr) {
        closure_ = static_cast<uint32_t>(options_.log->closures.size());
        options_.log->closures.push_back(label);
    }
    [encoder_.get() pushDebugGroup:label_object(label)];
}

void GraphEncoder::close_closure(Label label) {
    [encoder_.get() popDebugGroup];
    if (stops_after && stops_after(label)) {
        end();
        after_closure(label);
        begin(next_commands());
    }
}

bool GraphEncoder::omitted() {
    const uint32_t barrier = barriers_++;
    return std::find(options_.omit.begin(), options_.omit.end(), barrier) != options_.omit.end();
}

void GraphEncoder::broad_barrier(std::string_view why) {
    if (omitted()) return;
    [encoder_.get() memoryBarrierWithScope:MTLBarrierScopeBuffers];
    if (options_.log == nullptr) return;
    ++options_.log->broad;
    options_.log->barriers.push_back({ordinal_, "closure", std::string(why), {}});
}

void GraphEncoder::targeted_barrier(std::string_view site, std::string_view hazard,
                                    const std::vector<const Buffer*>& buffers) {
    if (omitted()) return;
    std::vector<id<MTLResource> > resources;
    for (const Buffer* buffer : buffers) resources.push_back(buffer->object.get());
    [encoder_.get() memoryBarrierWithResources:resources.data() count:resources.size()];
    if (options_.log == nullptr) return;
    ++options_.log->targeted;
    EncodeLog::Barrier entry{ordinal_, std::string(site), std::string(hazard), {}};
    for (const Buffer* buffer : buffers) entry.resources.push_back(buffer->label);
    options_.log->barriers.push_back(std::move(entry));
}

void GraphEncoder::order(const BarrierSite& site, std::initializer_list<const Buffer*> buffers) {
    // The other modes have a barrier here already, or have proved that none is needed.
    if (options_.mode != BarrierMode::hand) return;
    targeted_barrier(site.name, site.hazard, buffers);
}

void GraphEncoder::planned_barrier() {
    if (ordinal_ >= options_.plan->dispatches()) {
        throw ConfigError("the barrier plan does not cover dispatch " + std::to_string(ordinal_),
                          {{"dispatch", std::to_string(ordinal_)}});
    }
    if (options_.plan->barrier_before(ordinal_)) broad_barrier("planned");
}

void GraphEncoder::encode(std::string_view kernel, const void* args, size_t args_bytes,
                          uint64_t units, uint32_t columns,
                          std::initializer_list<Argument> arguments) {
    if (options_.mode == BarrierMode::all && !barrier_pending_) broad_barrier("every dispatch");
    if (options_.mode == BarrierMode::planned) planned_barrier();
    barrier_pending_ = false;

    const kernels::KernelShape* shape = kernels::find_kernel_shape(kernel);
    if (shape == nullptr) {
        throw DeviceError("kernel " + std::string(kernel) + " is not in the catalogue",
                          {{"kernel", std::string(kernel)}});
    }
    const kernels::LaunchShape launch = kernels::launch_shape(*shape, units, columns);
    const Pipeline& pipeline = context_.pipeline(kernel);
    [encoder_.get() setComputePipelineState:pipeline.state.get()];
    [encoder_.get() setBytes:args length:args_bytes atIndex:0];
    for (const Argument& argument : arguments) {
        [encoder_.get() setBuffer:argument.buffer->object.get()
                           offset:argument.offset
                          atIndex:argument.index];
    }
#if !defined(__APPLE__)
    std::vector<stream::DeclaredAccess> accesses;
    accesses.reserve(arguments.size());
    for (const Argument& argument : arguments) {
        if (argument.length == 0) continue;
        if (argument.step) {
            declare_step_reads(kernel, argument, accesses);
            continue;
        }
        if (argument.forms_of != 0) {
            declare_forms(argument, accesses);
            continue;
        }
        accesses.push_back({argument.index, argument.access, 0, argument.length, argument.rows});
    }
    portable::declare_accesses(encoder_.get(), accesses);
#endif
    [encoder_.get()
         dispatchThreadgroups:MTLSizeMake(launch.groups_x, launch.groups_y, launch.groups_z)
        threadsPerThreadgroup:MTLSizeMake(launch.threads, 1, 1)];
    if (options_.log != nullptr) {
        options_.log->dispatches.push_back({closure_,
                                            std::string(kernel),
                                            {launch.groups_x, launch.groups_y, launch.groups_z},
                                            launch.threads,
                                            arguments});
    }
    ++ordinal_;
}

}  // namespace muser
