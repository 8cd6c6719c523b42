// The float mode of the engine's threads (docs/numerics.md §0): round to nearest even, f32
// subnormals flushed to signed zero on input and on output, no traps.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace muser::contract {

// The calling thread's float control register, whole.
static inline uint64_t float_mode() {
#if defined(__SSE2__)
    return _mm_getcsr();
#elif defined(__aarch64__)
    uint64_t mode = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
#error "no flush mode known for this processor"
#endif
}

static inline void set_float_mode(uint64_t mode) {
    // The barriers keep loads, stores and so float work on memory on their side of the change.
    __asm__ volatile("" ::: "memory");
#if defined(__SSE2__)
    _mm_setcsr(static_cast<uint32_t>(mode));
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(mode));
#endif
    __asm__ volatile("" ::: "memory");
}

#if defined(__SSE2__)
// All exceptions masked, nearest, FTZ (bit 15) and DAZ (bit 6).
inline constexpr uint64_t kContractFloatMode = 0x1f80u | 0x8000u | 0x0040u;
#else
// FPCR: FZ (bit 24) alone. FZ16 stays clear, f16 subnormals are values.
inline constexpr uint64_t kContractFloatMode = uint64_t{1} << 24;
#endif

// Sets the mode for its scope on the calling thread and restores the host's on the way out. A
// compiler may still move arithmetic on values already in registers across it, so put the work into
// a function of its own that reads its inputs from memory.
class FlushSubnormals {
  public:
    FlushSubnormals() : saved_(float_mode()) { set_float_mode(kContractFloatMode); }
    ~FlushSubnormals() { set_float_mode(saved_); }
    FlushSubnormals(const FlushSubnormals&) = delete;
    FlushSubnormals& operator=(const FlushSubnormals&) = delete;

  private:
    uint64_t saved_;
};

}  // namespace muser::contract
