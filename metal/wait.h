// Bounded waits. Metal's own wait has no deadline, so a watcher thread sits in it and the caller
// parks on a condition variable with one.
#pragma once

#import <Metal/Metal.h>

#include <functional>
#include <memory>
#include <vector>

#include "metal/objc_ptr.h"

namespace muser {

// Thrown out of wait() when `interrupted` answered true twice: see Waiter::wait.
struct Interrupted {};

class Waiter {
  public:
    // `memory` is what command buffers read and do not own, such as a mapped file. It stays for as
    // long as any of them is in flight, even when the Waiter and everybody else are gone.
    explicit Waiter(std::vector<std::shared_ptr<const void>> memory = {});
    // Leaves a watcher that is stuck in a hung command buffer behind: it keeps what it needs.
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    // Returns once the buffer has completed. DeadlineError after `seconds`; DeviceError (code,
    // closure where the device can tell) or DeviceMemoryError when it ended in an error: the
    // status is read after the wait. `interrupted` is asked about ten times a second; from its
    // first true the buffer gets `kGraceSeconds` to finish, then Interrupted is thrown.
    void wait(id<MTLCommandBuffer> commands, double seconds,
              const std::function<bool()>& interrupted = {});

    // Command buffers that nobody will wait for any more and that may still be in flight.
    void abandon(const std::vector<ObjcPtr<CommandBufferId>>& commands);

    static constexpr double kGraceSeconds = 5.0;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace muser
