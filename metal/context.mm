#import "metal/context.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "contract/probe.h"
#include "errors.h"
#include "metal/kernels/args.h"
#include "metal/kernels/launch_shapes.h"
#include "metal/wait.h"
#if !defined(__APPLE__)
#include "device/fault_device.h"
#import "metal/portable/portable.h"
#endif

namespace muser {
namespace {

ObjcPtr<NSString*> make_string(std::string_view text) {
    return ObjcPtr<NSString*>::adopt(
        [[NSString alloc] initWithUTF8String:std::string(text).c_str()]);
}

// The kernel sources as one translation unit: #include "x.h" lines are replaced by the file, once.
// Metal's compiler takes one string and no include folders. What lies outside the kernels' folder
// is for C++ compilers only and is left out.
void append_source(const std::filesystem::path& root, const std::filesystem::path& file,
                   std::vector<std::filesystem::path>& seen, std::string& out) {
    if (std::find(seen.begin(), seen.end(), file) != seen.end()) return;
    seen.push_back(file);
    std::ifstream in(file);
    if (!in) throw ConfigError("kernel source not found", {{"file", file.string()}});
    for (std::string line; std::getline(in, line);) {
        constexpr std::string_view kInclude = "#include \"";
        if (line.starts_with(kInclude)) {
            const std::string included =
                line.substr(kInclude.size(), line.rfind('"') - kInclude.size());
            const auto target = (file.parent_path() / included).lexically_normal();
            const auto within = target.lexically_relative(root);
            if (!within.empty() && *within.begin() != "..") append_source(root, target, seen, out);
        } else if (line != "#pragma once") {
            out += line;
            out += '\n';
        }
    }
}

void append_folder(const std::filesystem::path& root, const std::filesystem::path& folder,
                   std::string_view extension, std::vector<std::filesystem::path>& seen,
                   std::string& source) {
    std::vector<std::filesystem::path> files;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
        if (entry.path().extension() == extension) files.push_back(entry.path());
    }
    if (files.empty()) {
        throw ConfigError("no " + std::string(extension) + " files",
                          {{"kernel_dir", folder.string()}});
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) append_source(root, file, seen, source);
}

// With `cuda`, what that device has beside the portable kernels follows them.
std::string kernel_source(const std::string& folder, bool cuda) {
    const auto root = std::filesystem::path(folder).lexically_normal();
    std::string source;
    std::vector<std::filesystem::path> seen;
    append_folder(root, root, ".metal", seen, source);
    if (cuda) append_folder(root, root / "cuda", ".cu", seen, source);
    return source;
}

std::string error_text(NSError* error) {
    if (error == nil) return "no reason given";
    return [[error localizedDescription] UTF8String];
}

}  // namespace

Context::Context(const ContextOptions& options) : untracked_(options.untracked) {
    AutoreleaseScope scope;
    std::string source;
#if defined(__APPLE__)
    if (options.device != "metal") {
        throw ConfigError("this build has one device, metal", {{"device", options.device}});
    }
    device_ = ObjcPtr<DeviceId>::adopt(MTLCreateSystemDefaultDevice());
    if (!device_) throw DeviceError("this Mac offers no Metal device", {{"device", "metal"}});
    description_ = {"metal", [[device_.get() name] UTF8String], "metal", 0, {}};
    source = kernel_source(options.kernel_dir, false);
#else
    std::shared_ptr<device::Device> made = device::make_device(options.device, options.options);
    if (auto broken = device::make_fault_device(made, options.faults)) made = std::move(broken);
    description_ = {
        std::string(made->name()), made->description(), made->isa(), made->threads(), {}};
    if (made->name() == "cuda") source = kernel_source(options.kernel_dir, true);
    device_ = ObjcPtr<DeviceId>::adopt(portable::new_device(std::move(made)));
#endif
    queue_ = ObjcPtr<QueueId>::adopt(
        [device_.get() newCommandQueueWithMaxCommandBufferCount:options.command_buffers]);
    NSError* error = nil;
    MTLCompileOptions* compile = nil;
#if defined(__APPLE__)
    // The pragmas in every kernel file say the same; this covers compilers that miss one.
    const auto compile_options =
        ObjcPtr<MTLCompileOptions*>::adopt([[MTLCompileOptions alloc] init]);
    compile = compile_options.get();
    [compile setFastMathEnabled:NO];
#endif
    library_ =
        ObjcPtr<LibraryId>::adopt([device_.get() newLibraryWithSource:make_string(source).get()
                                                              options:compile
                                                                error:&error]);
    if (!library_) {
        throw DeviceError("the kernel library did not compile: " + error_text(error),
                          {{"device", description_.name}});
    }
    run_probe();
}

Context::~Context() = default;

const Pipeline* Context::find_pipeline(std::string_view kernel) {
    if (const auto found = pipelines_.find(kernel); found != pipelines_.end()) {
        return found->second.state ? &found->second : nullptr;
    }
    AutoreleaseScope scope;
    Pipeline& pipeline = pipelines_[std::string(kernel)];
    const auto function =
        ObjcPtr<FunctionId>::adopt([library_.get() newFunctionWithName:make_string(kernel).get()]);
    if (!function) return nullptr;
    NSError* error = nil;
    pipeline.state =
        ObjcPtr<PipelineId>::adopt([device_.get() newComputePipelineStateWithFunction:function.get()
                                                                                error:&error]);
    if (!pipeline.state) {
        throw DeviceError("pipeline for " + std::string(kernel) + ": " + error_text(error),
                          {{"kernel", std::string(kernel)}});
    }
    // Every kernel is written for SIMD groups of 32 lanes.
    const auto width = static_cast<uint64_t>([pipeline.state.get() threadExecutionWidth]);
    if (width != 32) {
        throw DeviceError("kernel " + std::string(kernel) + " has an execution width of " +
                              std::to_string(width) + ", 32 is needed",
                          {{"kernel", std::string(kernel)},
                           {"found", std::to_string(width)},
                           {"expected", "32"}});
    }
    pipeline.max_threads =
        static_cast<uint32_t>([pipeline.state.get() maxTotalThreadsPerThreadgroup]);
    const kernels::KernelShape* shape = kernels::find_kernel_shape(kernel);
    if (shape != nullptr && shape->threads > pipeline.max_threads) {
        throw DeviceError("kernel " + std::string(kernel) + " needs " +
                              std::to_string(shape->threads) +
                              " threads per threadgroup, the pipeline allows " +
                              std::to_string(pipeline.max_threads),
                          {{"kernel", std::string(kernel)},
                           {"found", std::to_string(pipeline.max_threads)},
                           {"expected", std::to_string(shape->threads)}});
    }
    return &pipeline;
}

bool Context::has_kernel(std::string_view kernel) { return find_pipeline(kernel) != nullptr; }

const Pipeline& Context::pipeline(std::string_view kernel) {
    const Pipeline* found = find_pipeline(kernel);
    if (found == nullptr) {
        throw DeviceError("device " + description_.name + " has no kernel " + std::string(kernel),
                          {{"device", description_.name}, {"kernel", std::string(kernel)}});
    }
    return *found;
}

Buffer Context::make_buffer(std::string label, uint64_t bytes, Placement placement) {
    MTLResourceOptions options = MTLResourceStorageModeShared;
#if !defined(__APPLE__)
    // Apple's memory is unified; elsewhere what the host never looks at may live on the device.
    if (placement == Placement::device) options |= MTLResourceStorageModePrivate;
#else
    (void)placement;
#endif
    options |=
        untracked_ ? MTLResourceHazardTrackingModeUntracked : MTLResourceHazardTrackingModeTracked;
    Buffer buffer;
    buffer.length = std::max<uint64_t>(bytes, 16);
    buffer.label = std::move(label);
    if (buffer.length <= [device_.get() maxBufferLength]) {
        buffer.object = ObjcPtr<BufferId>::adopt([device_.get() newBufferWithLength:buffer.length
                                                                            options:options]);
    }
    if (!buffer) {
        throw DeviceMemoryError(
            "no memory for " + buffer.label + ": " + std::to_string(buffer.length) + " bytes",
            {{"buffer", buffer.label},
             {"bytes", std::to_string(buffer.length)},
             {"device", description_.name}});
    }
#if defined(__APPLE__)
    [buffer.object.get() setLabel:make_string(buffer.label).get()];
#else
    portable::set_label(buffer.object.get(), buffer.label.c_str());
#endif
    return buffer;
}

namespace {

// Kernel names spell the types in ggml's way, but lower case up to the underscore.
std::string kernel_type_name(model::TensorType type) {
    switch (type) {
        case model::TensorType::F32:
            return "f32";
        case model::TensorType::F16:
            return "f16";
        case model::TensorType::BF16:
            return "bf16";
        case model::TensorType::Q8_0:
            return "q8_0";
        case model::TensorType::Q4_K:
            return "q4_K";
        case model::TensorType::Q5_K:
            return "q5_K";
        case model::TensorType::Q6_K:
            return "q6_K";
    }
    return "unknown";
}

}  // namespace

#if defined(__APPLE__)

// One window per run of whole tensors, page-aligned, no longer than a buffer may be.
id<MTLBuffer> Context::map_weight(const model::Model& model, const model::Weight& weight,
                                  DeviceWeight& out) {
    for (const Window& window : windows_) {
        if (weight.file_offset >= window.offset &&
            weight.file_offset + weight.bytes <= window.offset + window.length) {
            out.offset = weight.file_offset - window.offset;
            return window.buffer.object.get();
        }
    }
    // Kernels read 16 bytes at once, and a file may have its tensors at multiples of 8: such a one
    // is copied.
    if (weight.file_offset % 16 != 0) {
        Window copy{weight.file_offset, weight.bytes,
                    make_buffer(std::string(weight.name), weight.bytes, Placement::device)};
        std::memcpy([copy.buffer.object.get() contents], weight.data, weight.bytes);
        windows_.push_back(std::move(copy));
        return windows_.back().buffer.object.get();
    }
    const auto page = static_cast<uint64_t>(getpagesize());
    const uint64_t file_end = (model.bytes().size() + page - 1) / page * page;
    Window window;
    window.offset = weight.file_offset / page * page;
    const uint64_t most = [device_.get() maxBufferLength] / page * page;
    window.length = std::min(most, file_end - window.offset);
    if (weight.file_offset + weight.bytes > window.offset + window.length) return nil;
    window.buffer.label = "weights at " + std::to_string(window.offset);
    window.buffer.length = window.length;
    window.buffer.object = ObjcPtr<BufferId>::adopt([device_.get()
        newBufferWithBytesNoCopy:const_cast<std::byte*>(model.bytes().data() + window.offset)
                          length:window.length
                         options:MTLResourceStorageModeShared
                     deallocator:nil]);
    if (!window.buffer) return nil;
    out.offset = weight.file_offset - window.offset;
    windows_.push_back(std::move(window));
    return windows_.back().buffer.object.get();
}

#endif

DeviceWeight Context::make_weight(const model::Model& model, const model::Weight& weight) {
    DeviceWeight out;
    out.type = weight.type;
    out.rows = static_cast<uint32_t>(weight.rows);
    out.cols = static_cast<uint32_t>(weight.cols);
    out.bytes = weight.bytes;
    out.type_name = kernel_type_name(weight.type);
    out.quantised = model::is_quantised(weight.type);
#if defined(__APPLE__)
    id<MTLBuffer> buffer = map_weight(model, weight, out);
    [buffer retain];
#else
    const device::WeightShape shape{static_cast<uint32_t>(weight.type), weight.rows, weight.cols};
    // Norm vectors and the embedding table are read by rows, never multiplied: ggml's own layout.
    const bool multiplied = weight.rows > 1 && weight.name != "token_embd.weight";
    device::WeightLayout layout{"", weight.bytes};
    if (multiplied) layout = portable::device_of(device_.get()).layout(shape);
    out.layout = layout.suffix;
    out.bytes = layout.bytes;
    // The disk works on what comes next in the file while the device repacks this.
    constexpr uint64_t kReadAhead = uint64_t{64} << 20;
    if (multiplied && model.file() != nullptr) {
        model.file()->advise(model::Advice::will_need, weight.file_offset,
                             weight.bytes + kReadAhead);
    }
    id<MTLBuffer> buffer =
        portable::new_weight_buffer(device_.get(), shape, layout, weight.data, weight.bytes);
    // A repacked matrix is not read from the file again; its pages need not stay in this process.
    if (!layout.suffix.empty() && model.file() != nullptr) {
        model.file()->advise(model::Advice::dont_need, weight.file_offset, weight.bytes);
    }
#endif
    out.buffer.object = ObjcPtr<BufferId>::adopt(buffer);
    out.buffer.label = std::string(weight.name);
    if (!out.buffer) {
        throw DeviceMemoryError("no memory for tensor " + out.buffer.label,
                                {{"tensor", out.buffer.label},
                                 {"bytes", std::to_string(out.bytes)},
                                 {"device", description_.name}});
    }
    out.buffer.length = static_cast<uint64_t>([out.buffer.object.get() length]);
#if !defined(__APPLE__)
    portable::set_label(out.buffer.object.get(), out.buffer.label.c_str());
#endif
    description_.weight_bytes[out.layout.empty() ? "ggml" : out.layout.substr(1)] += out.bytes;
    return out;
}

void Context::read(const Buffer& from, uint64_t offset, void* to, uint64_t bytes) const {
#if defined(__APPLE__)
    std::memcpy(to, static_cast<const std::byte*>([from.object.get() contents]) + offset, bytes);
#else
    portable::device_of(device_.get())
        .read(*portable::buffer_of(from.object.get()), offset, to, bytes);
#endif
}

void Context::write(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) const {
#if defined(__APPLE__)
    std::memcpy(static_cast<std::byte*>([to.object.get() contents]) + offset, from, bytes);
#else
    portable::write(device_.get(), to.object.get(), offset, from, bytes);
#endif
}

void Context::run_probe() {
    AutoreleaseScope scope;
    const auto rows = contract::probe_rows();
    const auto input = contract::probe_input();
    const Buffer in = make_buffer("probe rows", input.size_bytes(), Placement::host_visible);
    const Buffer out = make_buffer("probe results", rows.size() * 4, Placement::host_visible);
    write(in, 0, input.data(), input.size_bytes());
    const ProbeArgs args{static_cast<uint32_t>(rows.size())};
    id<MTLCommandBuffer> commands = [queue_.get() commandBuffer];
    id<MTLComputeCommandEncoder> encoder =
        [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
    [encoder setComputePipelineState:pipeline("probe_u32").state.get()];
    [encoder setBytes:&args length:sizeof args atIndex:0];
    [encoder setBuffer:in.object.get() offset:0 atIndex:1];
    [encoder setBuffer:out.object.get() offset:0 atIndex:2];
    const NSUInteger groups = (rows.size() + 31) / 32;
    [encoder dispatchThreadgroups:MTLSizeMake(groups, 1, 1)
            threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
    [encoder endEncoding];
    [commands commit];
    Waiter waiter;
    waiter.wait(commands, 60.0);
    std::vector<uint32_t> results(rows.size());
    read(out, 0, results.data(), rows.size() * 4);
    contract::check_probe(results.data(), results.size(), description_.name.c_str());
}

}  // namespace muser
