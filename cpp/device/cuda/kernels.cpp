#include "device/cuda/kernels.h"

#include <algorithm>
#include <cstring>

#include "device/cuda/launch_reads.h"
#include "errors.h"
#include "metal/kernels/args.h"
#include "metal/kernels/cuda/launch_args.h"
#include "metal/kernels/launch_shapes.h"

namespace muser::device::cuda {
namespace {

using stream::CommandBuffer;
using stream::Dispatch;

constexpr uint32_t kCounters = 1u << 18;
constexpr uint32_t kNormLongest = 8192, kNormShortest = 1024;

struct OwnForm {
    std::string_view name;
    const char* function;
    LaunchForm form;
};
constexpr OwnForm kOwnForms[] = {
    {"rms_norm_add_norm_b16", "muser_norm_boundary", LaunchForm::norm_boundary},
    {"attend_chunks_gqa_f16", "muser_attend_128_f16", LaunchForm::attend},
    {"attend_combine_gate_b16", "muser_combine_gate_128", LaunchForm::combine_gate},
    {"qk_norm_rope_store_f16", "muser_qk_store_128_f16", LaunchForm::qk_store},
};
// By ProductForm.
constexpr const char* kProducts[] = {"muser_products_r32", "muser_products_deep_r32",
                                     "muser_products_wide_r32", "muser_products_silu_r32",
                                     "muser_products_silu_small_r32"};
bool is_product(const Dispatch& dispatch) {
    const auto* kernel = dynamic_cast<const CudaKernel*>(dispatch.kernel.get());
    return kernel != nullptr && kernel->form == LaunchForm::product;
}

// The type of "mul_mv_q4_K_b16_r32" and the silu products by ggml's number; 0 for other names.
uint32_t product_type(std::string_view name) {
    constexpr std::pair<std::string_view, uint32_t> kTypes[] = {
        {"q8_0", 8}, {"q4_K", 12}, {"q5_K", 13}, {"q6_K", 14}};
    for (const auto& [text, type] : kTypes) {
        if (name == "mul_mv_" + std::string(text) + "_b16_r32" ||
            name == "mul_mv_silu_" + std::string(text) + "_b16_r32") {
            return type;
        }
    }
    return 0;
}

}  // namespace

KernelLibrary::KernelLibrary(GpuRef gpu, const std::string& code)
    : gpu_(std::move(gpu)), counters_(gpu_, kCounters * 4) {
    const CUresult loaded = gpu_->api->module_load(&module_, code.data());
    if (loaded == kInvalidImage || loaded == kNoBinaryForGpu || loaded == kUnsupportedPtx) {
        throw DeviceError("the NVIDIA driver cannot run what NVRTC made (" + error_text(loaded) +
                              "); it is older than the compiler",
                          {{"device", "cuda"}, {"code", std::to_string(loaded)}});
    }
    check(loaded, "cuModuleLoadData");
    repack_ = function("muser_repack_r32");
    store_attend_ = function("muser_store_attend_128_f16");
    bool whole = repack_ != nullptr && store_attend_ != nullptr;
    for (size_t form = 0; form < products_.size(); ++form) {
        products_[form] = function(kProducts[form]);
        whole = whole && products_[form] != nullptr;
    }
    if (!whole) {
        throw DeviceError("the kernel sources lack the cuda device's own kernels",
                          {{"device", "cuda"}});
    }
    for (const CUfunction product : products_) {
        check(gpu_->api->function_set(product, kFunctionMaxDynamicShared, gpu_->shared_bytes),
              "cuFuncSetAttribute");
    }
    check(gpu_->api->set_bytes(counters_.address(), 0, kCounters * 4, nullptr), "cuMemsetD8");
    check(gpu_->api->stream_synchronize(nullptr), "cuStreamSynchronize");
}

KernelLibrary::~KernelLibrary() {
    try {
        gpu_->use();
        gpu_->api->module_unload(module_);
    } catch (const Error&) {  // the context is gone, and the module with it
    }
}

CUfunction KernelLibrary::function(const std::string& name) const {
    CUfunction found = nullptr;
    const CUresult result = gpu_->api->module_function(&found, module_, name.c_str());
    if (result == kNotFound) return nullptr;
    check(result, "cuModuleGetFunction");
    return found;
}

std::shared_ptr<const CudaKernel> KernelLibrary::find(std::string_view name) const {
    const kernels::KernelShape* shape = kernels::find_kernel_shape(name);
    if (shape == nullptr) return nullptr;
    gpu_->use();
    auto kernel = std::make_shared<CudaKernel>();
    kernel->name = name;
    kernel->buffers = shape->buffers;
    if (const uint32_t type = product_type(name); type != 0) {
        const bool silu = name.starts_with("mul_mv_silu_");
        kernel->form = silu ? LaunchForm::silu_product : LaunchForm::product;
        kernel->function = products_[0];
        kernel->shape = r32_shape(type);
        return kernel;
    }
    kernel->function = function(std::string(name));
    if (kernel->function == nullptr) return nullptr;
    for (const OwnForm& own : kOwnForms) {
        if (name != own.name) continue;
        kernel->fast = function(own.function);
        if (kernel->fast != nullptr) kernel->form = own.form;
    }
    if (name.starts_with("embed_")) {
        kernel->fast = function(std::string("muser_wide_").append(name));
        if (kernel->fast != nullptr) kernel->form = LaunchForm::embed;
    }
    int threads = 0;
    check(gpu_->api->function_get(&threads, kFunctionMaxThreads, kernel->function),
          "cuFuncGetAttribute");
    kernel->max_threads = static_cast<uint32_t>(threads);
    return kernel;
}

bool KernelLibrary::mergeable(const CommandBuffer& commands, const std::vector<uint32_t>& others,
                              uint32_t d) {
    if (others.size() >= MUSER_R32_PARTS) return false;
    const Dispatch& first = commands.dispatches[others.front()];
    const Dispatch& second = commands.dispatches[d];
    if (!is_product(first) || !is_product(second)) return false;
    const auto a = arguments<MatVecArgs>(commands, first);
    const auto b = arguments<MatVecArgs>(commands, second);
    return a.cols == b.cols && a.columns == b.columns;
}

PreparedLaunch KernelLibrary::prepare(const CommandBuffer& commands, const Launch& launch,
                                      Used& used) const {
    const Dispatch& first = commands.dispatches[launch.dispatches.front()];
    switch (kernel_of(first).form) {
        case LaunchForm::product:
        case LaunchForm::silu_product:
            return prepare_products(commands, launch, used);
        case LaunchForm::qk_store:
            if (launch.dispatches.size() > 1) return prepare_attention(commands, launch, used);
            return prepare_catalogue(commands, first);
        default:
            return prepare_catalogue(commands, first);
    }
}

void KernelLibrary::choose_form(const CommandBuffer& commands, const Dispatch& dispatch,
                                PreparedLaunch& launch) const {
    const CudaKernel& kernel = kernel_of(dispatch);
    switch (kernel.form) {
        case LaunchForm::norm_boundary: {
            const auto args = arguments<DualNormArgs>(commands, dispatch);
            if (args.n < kNormShortest || args.n > kNormLongest) return;
            launch.shared_bytes = args.n * 4;
            break;
        }
        case LaunchForm::attend: {
            const auto args = arguments<AttendArgs>(commands, dispatch);
            const uint32_t queries = queries_of_block(args.heads, args.kv_heads);
            if (args.head_dim != kHeadDim || queries == 0) return;
            launch.grid[1] = args.heads / queries;
            break;
        }
        case LaunchForm::combine_gate: {
            const auto args = arguments<AttendArgs>(commands, dispatch);
            if (args.head_dim != kHeadDim || args.heads % 2 != 0) return;
            if (args.capacity / MUSER_CHUNK + 2 > kMostChunks) return;
            break;
        }
        case LaunchForm::qk_store: {
            if (arguments<QkStoreArgs>(commands, dispatch).head_dim != kHeadDim) return;
            break;
        }
        case LaunchForm::embed: {
            const auto args = arguments<EmbedArgs>(commands, dispatch);
            launch.grid = {(args.hidden + 255) / 256, 1, 1};
            launch.block = {256, 1, 1};
            break;
        }
        default:
            return;
    }
    launch.function = kernel.fast;
}

uint64_t KernelLibrary::take_counters(uint32_t count, Used& used) const {
    if (count > kCounters) {
        throw DeviceError("a launch needs " + std::to_string(count) + " counters, more than the " +
                              std::to_string(kCounters) + " there are",
                          {{"device", "cuda"},
                           {"found", std::to_string(count)},
                           {"expected", std::to_string(kCounters)}});
    }
    count += count % 2;  // pairs of them are read and written together
    if (used.counters + count > kCounters) used.counters = 0;
    const uint64_t at = counters_.address() + uint64_t{used.counters} * 4;
    used.counters += count;
    return at;
}

PreparedLaunch KernelLibrary::prepare_catalogue(const CommandBuffer& commands,
                                                const Dispatch& dispatch) const {
    const CudaKernel& kernel = kernel_of(dispatch);
    PreparedLaunch launch;
    launch.function = kernel.function;
    launch.grid = {dispatch.groups.x, dispatch.groups.y, dispatch.groups.z};
    launch.block = {dispatch.threads.x, dispatch.threads.y, dispatch.threads.z};
    choose_form(commands, dispatch, launch);
    // The argument struct, then an address per buffer.
    const size_t first = (dispatch.args_length + 7) / 8 * 8;
    launch.storage.resize(first + kernel.buffers * 8);
    std::memcpy(launch.storage.data(), commands.arguments(dispatch), dispatch.args_length);
    launch.params.push_back(launch.storage.data());
    for (uint32_t i = 0; i < kernel.buffers; ++i) {
        const uint64_t address = address_of(commands, dispatch, i + 1);
        std::memcpy(launch.storage.data() + first + i * 8, &address, 8);
        launch.params.push_back(launch.storage.data() + first + i * 8);
    }
    return launch;
}

}  // namespace muser::device::cuda
