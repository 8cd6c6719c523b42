// Recordings of steps for the auditor: what would be encoded, with the host's part, not run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muser {

// Names of a kernel's buffer arguments from index 1 on, as the catalogue (metal/kernels/args.h)
// has them. Empty for a kernel that is not in it.
std::vector<std::string_view> argument_names(std::string_view kernel);

// What the launchers between them declare of each: "r", "w" or "rw".
std::vector<std::string_view> argument_accesses(std::string_view kernel);

// The layer that a closure's label names ("blk.3.attention"), or -1.
int layer_of(std::string_view label);

}  // namespace muser
