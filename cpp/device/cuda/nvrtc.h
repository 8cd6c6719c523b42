// NVRTC, opened at run time: kernel sources to machine code for one GPU.
#pragma once

#include <string>
#include <vector>

namespace muser::device::cuda {

struct CompileRequest {
    std::string source;
    std::string architecture;             // "sm_90"
    std::string library_path;             // "": searched
    std::string cache_dir;                // "": nothing is kept
    int driver_version = 0;               // part of the cache's key
    std::vector<std::string> extra = {};  // further options
};

// Machine code for the request, from the cache where it has it. DeviceError when there is no NVRTC
// or it refuses the source; the facts carry its log.
std::string compile(const CompileRequest& request);

// The NVRTC libraries that would be tried, in order.
std::vector<std::string> nvrtc_candidates(const std::string& library_path);

// Name of the cache file of a request under NVRTC `version`.
std::string cache_name(const CompileRequest& request, const std::string& version);

}  // namespace muser::device::cuda
