// The rate at which this machine reads memory. Decoding is bound by it, so speeds are told as a
// share of it, measured in the same minute with the same number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace muser::device::cpu {

// Holds memory in huge pages, where there are any, and threads of its own; both live as long as the
// probe, so that passes can take turns with what they are compared to.
class ReadProbe {
  public:
    // `bytes` (rounded down to whole units; at least one) should be far beyond the caches; threads
    // 0: as many as the device would use. Tries each way of reading once and keeps the fastest.
    // Throws ConfigError, DeviceMemoryError.
    ReadProbe(uint64_t bytes, int threads);
    ~ReadProbe();
    ReadProbe(const ReadProbe&) = delete;
    ReadProbe& operator=(const ReadProbe&) = delete;

    // Bytes per second of one pass over all of it.
    double pass();
    uint64_t bytes() const;
    int threads() const;
    std::string isa() const;
    // The name of the kernel that was fastest.
    std::string kernel() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace muser::device::cpu
