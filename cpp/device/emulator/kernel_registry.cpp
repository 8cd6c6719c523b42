#include "device/emulator/kernel_registry.h"

#include <algorithm>

namespace muser::emulator {

// Written by CMake: names every kernel file, so that the linker keeps them all.
void keep_kernel_files();

namespace {

std::vector<const KernelEntry*>& entries(bool traced) {
    static std::vector<const KernelEntry*> lists[2];
    return lists[traced ? 1 : 0];
}

}  // namespace

bool register_kernel(const KernelEntry* entry, bool traced) {
    entries(traced).push_back(entry);
    return true;
}

const KernelEntry* find_kernel(std::string_view name, bool traced) {
    keep_kernel_files();
    for (const KernelEntry* entry : entries(traced)) {
        if (name == entry->name) return entry;
    }
    return nullptr;
}

std::vector<const KernelEntry*> all_kernels(bool traced) {
    keep_kernel_files();
    std::vector<const KernelEntry*> out = entries(traced);
    std::sort(out.begin(), out.end(), [](const KernelEntry* a, const KernelEntry* b) {
        return std::string_view(a->name) < b->name;
    });
    return out;
}

}  // namespace muser::emulator
