#include "device/cpu/thread_count.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace muser::device::cpu {
namespace {

namespace fs = std::filesystem;

void keep_least(std::optional<double>& least, double value) {
    if (!least || value < *least) least = value;
}

// Version 2: "max 100000" or "150000 100000".
std::optional<double> quota_v2(const fs::path& folder) {
    std::ifstream file(folder / "cpu.max");
    std::string quota;
    double period = 0;
    if (!(file >> quota >> period) || period <= 0 || quota == "max") return std::nullopt;
    try {
        return std::stod(quota) / period;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

// Version 1: -1 stands for no quota.
std::optional<double> quota_v1(const fs::path& folder) {
    std::ifstream quota_file(folder / "cpu.cfs_quota_us");
    std::ifstream period_file(folder / "cpu.cfs_period_us");
    double quota = 0;
    double period = 0;
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
    if (quota <= 0 || period <= 0) return std::nullopt;
    return quota / period;
}

bool lists_cpu(const std::string& controllers) {
    return (',' + controllers + ',').find(",cpu,") != std::string::npos;
}

// Every folder from the process's own up to the mount. Inside a container the path may name folders
// that only the host sees; those simply hold no file.
template <class Quota>
void climb(const fs::path& mount, const std::string& path, Quota quota,
           std::optional<double>& least) {
    fs::path below = fs::path(path).relative_path();
    while (true) {
        if (const auto value = quota(mount / below)) keep_least(least, *value);
        if (below.empty()) return;
        below = below.parent_path();
    }
}

}  // namespace

int affinity_count() {
#if defined(__linux__)
    // The set grows with the machine; the kernel refuses one that is too small.
    for (int processors = 1024; processors <= 1 << 20; processors *= 2) {
        cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(processors));
        if (set == nullptr) break;
        const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(processors));
        const bool known = sched_getaffinity(0, bytes, set) == 0;
        const int count = known ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return count;
    }
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::optional<double> cgroup_cpus(const fs::path& root) {
    std::optional<double> least;
    const fs::path mounts = root / "sys/fs/cgroup";
    std::ifstream file(root / "proc/self/cgroup");
    std::string line;
    while (std::getline(file, line)) {  // id:controllers:path
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string path = line.substr(second + 1);
        if (controllers.empty()) {
            climb(mounts, path, quota_v2, least);
            climb(mounts / "unified", path, quota_v2, least);
        } else if (lists_cpu(controllers)) {
            climb(mounts / controllers, path, quota_v1, least);
            climb(mounts / "cpu", path, quota_v1, least);
        }
    }
    return least;
}

int default_threads() {
    const int processors = affinity_count();
    const std::optional<double> quota = cgroup_cpus();
    if (!quota || *quota >= processors) return processors;
    return std::max(1, static_cast<int>(*quota));
}

}  // namespace muser::device::cpu
