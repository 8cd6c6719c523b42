// Switching between stacks on one thread. A switch saves what the calling convention says a callee
// keeps, and nothing else: the float mode stays as it is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muser::emulator {

using FiberEntry = void (*)();

// Where a suspended fiber continues. A fresh one begins at `entry` on its own stack; `entry` must
// never return.
struct Fiber {
    void* stack_pointer = nullptr;
};

void prepare_fiber(Fiber& fiber, std::byte* stack_end, FiberEntry entry);
// Suspends the running code in `from` and continues `to`.
void switch_fiber(Fiber& from, Fiber& to);

// Stacks of `count` fibers, mapped together, touched only as far as they are used.
class FiberStacks {
  public:
    explicit FiberStacks(size_t count);
    ~FiberStacks();
    FiberStacks(const FiberStacks&) = delete;
    FiberStacks& operator=(const FiberStacks&) = delete;

    size_t count() const { return count_; }
    std::byte* end(size_t index) const;
    bool contains(const void* address) const {
        const auto* at = static_cast<const std::byte*>(address);
        return at >= base_ && at < base_ + count_ * kBytes;
    }

    static constexpr size_t kBytes = 64 * 1024;

  private:
    size_t count_;
    std::byte* base_;
};

}  // namespace muser::emulator
