// From a code address to file and line, with the binutils' or LLVM's addr2line where there is one.
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/emulator/tracer.h"

namespace muser::emulator {

namespace {

// "path/norm.metal:42" or "...:42 (discriminator 3)".
bool parse_place(const std::string& text, SourcePlace& place) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos || text[0] == '?') return false;
    place.file = text.substr(0, colon);
    place.line = static_cast<uint32_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 10));
    return place.line != 0;
}

SourcePlace look_up(const void* site) {
    Dl_info info{};
    if (dladdr(site, &info) == 0 || info.dli_fname == nullptr) return {};
    const std::string image = info.dli_fname;
    // The name goes through a shell.
    if (image.find('\'') != std::string::npos) return {};
    const auto offset =
        reinterpret_cast<uintptr_t>(site) - reinterpret_cast<uintptr_t>(info.dli_fbase);
    std::array<char, 64> hex{};
    std::snprintf(hex.data(), hex.size(), "0x%lx", static_cast<unsigned long>(offset));
    const std::string command = "addr2line -i -e '" + image + "' " + hex.data() + " 2>/dev/null";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    if (pipe == nullptr) return {};
    // Innermost function first. A helper in a header says less than the kernel file's own line.
    SourcePlace innermost;
    SourcePlace kernel_file;
    std::array<char, 4096> line{};
    while (std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
        std::string text(line.data());
        while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
        SourcePlace place;
        if (text.empty() || !parse_place(text, place)) continue;
        if (innermost.line == 0) innermost = place;
        if (kernel_file.line == 0 && place.file.ends_with(".metal")) kernel_file = place;
    }
    return kernel_file.line != 0 ? kernel_file : innermost;
}

}  // namespace

SourcePlace source_of(const void* site) {
    static std::mutex mutex;
    static std::map<const void*, SourcePlace> known;
    const std::lock_guard lock(mutex);
    const auto found = known.find(site);
    if (found != known.end()) return found->second;
    return known.emplace(site, look_up(site)).first->second;
}

bool in_image(const void* address) {
    Dl_info info{};
    return dladdr(address, &info) != 0;
}

}  // namespace muser::emulator
