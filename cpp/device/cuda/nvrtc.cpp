#include "device/cuda/nvrtc.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "errors.h"

namespace muser::device::cuda {
namespace {

namespace fs = std::filesystem;

using Program = struct NvrtcProgram*;

struct Nvrtc {
    int (*version)(int* major, int* minor) = nullptr;
    int (*create)(Program* program, const char* source, const char* name, int headers,
                  const char* const* header_sources, const char* const* header_names) = nullptr;
    int (*destroy)(Program* program) = nullptr;
    int (*compile)(Program program, int options, const char* const* texts) = nullptr;
    int (*log_size)(Program program, size_t* bytes) = nullptr;
    int (*log)(Program program, char* text) = nullptr;
    int (*cubin_size)(Program program, size_t* bytes) = nullptr;
    int (*cubin)(Program program, char* bytes) = nullptr;
    const char* (*error)(int result) = nullptr;
    std::string version_text;
};

// Contracting and flushing are arithmetic (docs/numerics.md §0); the rest is how the sources are
// written.
constexpr const char* kOptions[] = {"--fmad=false",      "--ftz=true",  "--prec-div=true",
                                    "--prec-sqrt=true",  "--std=c++17", "-default-device",
                                    "--disable-warnings"};

// Folders of NVIDIA's wheels beside the package that this code is part of.
void add_wheels(std::vector<std::string>& out) {
    Dl_info place{};
    if (dladdr(reinterpret_cast<const void*>(&add_wheels), &place) == 0) return;
    if (place.dli_fname == nullptr) return;
    std::error_code failed;
    const fs::path packages =
        fs::absolute(place.dli_fname, failed).parent_path().parent_path() / "nvidia";
    for (const auto& package : fs::directory_iterator(packages, failed)) {
        std::error_code none;
        for (const auto& file : fs::directory_iterator(package.path() / "lib", none)) {
            const std::string name = file.path().filename().string();
            if (name.starts_with("libnvrtc.so")) out.push_back(file.path().string());
        }
    }
}

bool bind(void* library, Nvrtc& api) {
    bool complete = true;
    const auto find = [&](auto& pointer, const char* symbol) {
        void* found = dlsym(library, symbol);
        complete = complete && found != nullptr;
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(found);
    };
    find(api.version, "nvrtcVersion");
    find(api.create, "nvrtcCreateProgram");
    find(api.destroy, "nvrtcDestroyProgram");
    find(api.compile, "nvrtcCompileProgram");
    find(api.log_size, "nvrtcGetProgramLogSize");
    find(api.log, "nvrtcGetProgramLog");
    find(api.cubin_size, "nvrtcGetCUBINSize");
    find(api.cubin, "nvrtcGetCUBIN");
    find(api.error, "nvrtcGetErrorString");
    if (!complete) return false;
    int major = 0;
    int minor = 0;
    api.version(&major, &minor);
    api.version_text = std::to_string(major) + "." + std::to_string(minor);
    return true;
}

Nvrtc open_nvrtc(const std::string& path) {
    Nvrtc api;
    const std::vector<std::string> candidates = nvrtc_candidates(path);
    for (const std::string& candidate : candidates) {
        void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) continue;
        if (bind(library, api)) return api;
        dlclose(library);
    }
    std::string tried;
    for (const std::string& candidate : candidates) {
        if (!tried.empty()) tried += ", ";
        tried += candidate;
    }
    throw DeviceError(
        "NVRTC, NVIDIA's run-time compiler, was not found; `pip install muser[cuda]` "
        "brings it (tried " +
            tried + ")",
        {{"device", "cuda"}, {"library", "libnvrtc.so"}, {"tried", tried}});
}

std::string compile_now(const Nvrtc& api, const CompileRequest& request) {
    Program program = nullptr;
    const auto refuse = [&](int result, const char* call) {
        std::string log;
        size_t bytes = 0;
        if (program != nullptr && api.log_size(program, &bytes) == 0) {
            log.resize(bytes);
            api.log(program, log.data());
        }
        if (program != nullptr) api.destroy(&program);
        throw DeviceError(
            "NVRTC " + api.version_text + " refused the kernels (" + call + ": " +
                api.error(result) + "): " + log.substr(0, 4000),
            {{"device", "cuda"}, {"architecture", request.architecture}, {"log", log}});
    };
    int result = api.create(&program, request.source.c_str(), "muser.cu", 0, nullptr, nullptr);
    if (result != 0) refuse(result, "nvrtcCreateProgram");
    const std::string architecture =
        std::string("--gpu-architecture=").append(request.architecture);
    std::vector<const char*> options{architecture.c_str()};
    options.insert(options.end(), std::begin(kOptions), std::end(kOptions));
    for (const std::string& option : request.extra) options.push_back(option.c_str());
    result = api.compile(program, static_cast<int>(options.size()), options.data());
    if (result != 0) refuse(result, "nvrtcCompileProgram");
    size_t bytes = 0;
    result = api.cubin_size(program, &bytes);
    std::string code(bytes, '\0');
    if (result == 0) result = api.cubin(program, code.data());
    if (result != 0) refuse(result, "nvrtcGetCUBIN");
    api.destroy(&program);
    return code;
}

uint64_t fnv(uint64_t hash, const std::string& text) {
    for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ull;
    return (hash ^ 0xff) * 0x100000001b3ull;  // between two texts
}

// Kept code begins with this line, so that a damaged or foreign file is compiled anew.
std::string signature(const CompileRequest& request, const std::string& version) {
    return std::string("muser cubin ")
        .append(cache_name(request, version))
        .append(" ")
        .append(std::to_string(request.source.size()))
        .append("\n");
}

std::string read_kept(const fs::path& file, const std::string& head) {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream all;
    all << in.rdbuf();
    std::string text = all.str();
    const std::string size = text.size() >= head.size() + 20 ? text.substr(head.size(), 20) : "";
    if (size.empty() || !text.starts_with(head)) return "";
    text.erase(0, head.size() + 20);
    return std::to_string(text.size()) == size.substr(0, size.find(' ')) ? text : "";
}

// Written beside and renamed, so that nobody ever reads half a file.
void keep(const fs::path& file, const std::string& head, const std::string& code) {
    static std::atomic<unsigned> counter{0};
    std::error_code failed;
    fs::create_directories(file.parent_path(), failed);
    fs::path beside = file;
    beside += std::string(".").append(std::to_string(getpid()));
    beside += std::string(".").append(std::to_string(counter++));
    std::string size = std::to_string(code.size());
    size.resize(20, ' ');
    {
        std::ofstream out(beside, std::ios::binary);
        out << head << size << code;
        if (!out.flush()) {  // a full disk costs the cache, not the load
            fs::remove(beside, failed);
            return;
        }
    }
    fs::rename(beside, file, failed);
    if (failed) fs::remove(beside, failed);
}

}  // namespace

std::vector<std::string> nvrtc_candidates(const std::string& library_path) {
    if (!library_path.empty()) return {library_path};
    std::vector<std::string> out;
    add_wheels(out);
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
        out.emplace_back(name);
        out.push_back(std::string("/usr/local/cuda/lib64/").append(name));
    }
    return out;
}

std::string cache_name(const CompileRequest& request, const std::string& version) {
    uint64_t first = 0xcbf29ce484222325ull;
    uint64_t second = 0x9ae16a3b2f90404full;
    const auto add = [&](const std::string& text) {
        first = fnv(first, text);
        second = fnv(second, text);
    };
    add(request.source);
    add(request.architecture);
    add(version);
    add(std::to_string(request.driver_version));
    for (const char* option : kOptions) add(option);
    for (const std::string& option : request.extra) add(option);
    char name[48];
    std::snprintf(name, sizeof name, "%016llx%016llx.cubin", static_cast<unsigned long long>(first),
                  static_cast<unsigned long long>(second));
    return name;
}

std::string compile(const CompileRequest& request) {
    const Nvrtc api = open_nvrtc(request.library_path);
    if (request.cache_dir.empty()) return compile_now(api, request);
    const std::string head = signature(request, api.version_text);
    const fs::path file =
        fs::path(request.cache_dir) / "cuda" / cache_name(request, api.version_text);
    std::string code = read_kept(file, head);
    if (!code.empty()) return code;
    code = compile_now(api, request);
    keep(file, head, code);
    return code;
}

}  // namespace muser::device::cuda
