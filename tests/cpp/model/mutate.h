// Seeded damage to the header of a GGUF file, and what a loader does with the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gguf_builder.h"
#include "model/gguf_header.h"

namespace muser::test {

// SplitMix64: the same numbers on every platform and library.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        state_ += 0x9E3779B97F4A7C15;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        return z ^ (z >> 31);
    }
    uint64_t below(uint64_t n) { return next() % n; }

  private:
    uint64_t state_;
};

// Damages one file again and again; each result starts from the intact file. Only the first
// `header` bytes are touched (or the file is cut), so that a large file costs no copies.
class HeaderMutator {
  public:
    HeaderMutator(Buffer file, size_t header, uint64_t seed);
    // Valid until the next call.
    model::Bytes next();

  private:
    void damage();

    Buffer file_;
    Buffer intact_;  // the header
    size_t header_;
    Random random_;
};

// Loads, and if it loads, walks everything a caller could: strings, weights' ends, ranges, planes.
// True if the file was accepted, false on GGUFError; anything else escapes. `message` if wanted.
bool load_and_walk(model::Bytes file, std::string* message = nullptr);
// The kind of a refusal: its message up to the place.
std::string reason(const std::string& message);

}  // namespace muser::test
