// Weights for the repetitions of a profiled stage. A token reads each matrix once, from memory; a
// repetition that read the same matrix again would find it in a cache, and so take less time than
// what it is to measure. So a repetition reads a copy, and each copy only after so many other bytes
// that no cache still holds it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "metal/context.h"

namespace muser {

class SpareWeights {
  public:
    // Above the last-level caches that processors have (300 MB of L3 on the largest one measured).
    static constexpr uint64_t kColdBytes = uint64_t{1} << 30;

    explicit SpareWeights(uint64_t cold_bytes = kColdBytes) : cold_bytes_(cold_bytes) {}

    // Makes what `extra` repetitions of a stage need, which reads these matrices in one token.
    // Copies stay for later tokens. DeviceMemoryError; what was made until then stays.
    void prepare(Context& context, const std::vector<const DeviceWeight*>& stage, int extra);

    // A token begins: its copies are taken from the first on.
    void rewind();

    // What a repetition reads in place of `own`: the next copy of a matrix of its type and shape.
    // `own` itself where one matrix is so large that reading it empties the caches. The address
    // stays valid.
    const DeviceWeight& next(const DeviceWeight& own);

    uint64_t bytes() const;  // of all copies

  private:
    // Matrices that one kernel reads in the same time.
    struct Pool {
        model::TensorType type;
        uint32_t rows, cols;
        std::string layout;
        std::deque<DeviceWeight> copies;  // stable addresses: recordings keep them
        size_t at = 0;
    };
    Pool* find(const DeviceWeight& weight);
    bool large(const DeviceWeight& weight) const { return weight.bytes >= cold_bytes_; }

    uint64_t cold_bytes_;
    std::deque<Pool> pools_;
};

}  // namespace muser
