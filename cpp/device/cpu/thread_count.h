// How many threads the machine really gives this process.
#pragma once

#include <filesystem>
#include <optional>

namespace muser::device::cpu {

// Processors in the affinity mask of the calling thread.
int affinity_count();

// CPUs that cgroup quotas leave to this process: the least along its path to the root, version 1 or
// 2; nothing where no quota is set. `root` holds proc/ and sys/.
std::optional<double> cgroup_cpus(const std::filesystem::path& root = "/");

// The affinity count, or the whole CPUs of the quota if fewer; at least 1.
int default_threads();

}  // namespace muser::device::cpu
