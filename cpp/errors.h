// Every error that leaves the C++ core: one class per kind, each carrying facts.
//
// The message is a sentence for people; `facts` are the same numbers for programs (offset, tensor,
// found, expected, position, ...). The Python layer maps each class to one exception of the same
// name under MuserError and hands the facts over as a dict.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace muser {

using Facts = std::vector<std::pair<std::string, std::string>>;

class Error : public std::runtime_error {
  public:
    explicit Error(const std::string& message, Facts facts = {})
        : std::runtime_error(message), facts_(std::move(facts)) {}
    const Facts& facts() const noexcept { return facts_; }
    // The Python exception's name.
    virtual const char* kind() const noexcept { return "MuserError"; }

  private:
    Facts facts_;
};

#define MUSER_ERROR(NAME)                                            \
    class NAME : public Error {                                      \
      public:                                                        \
        using Error::Error;                                          \
        const char* kind() const noexcept override { return #NAME; } \
    }

MUSER_ERROR(GGUFError);          // the file: malformed, unsupported, or not this model
MUSER_ERROR(ConfigError);        // a setting out of range or in conflict with the file or device
MUSER_ERROR(ContextFullError);   // the next token does not fit the context
MUSER_ERROR(TokenRangeError);    // a token id outside the vocabulary
MUSER_ERROR(EngineBusy);         // a second caller while a step runs
MUSER_ERROR(EngineClosed);       // closed, or dead after a device error; reload to go on
MUSER_ERROR(DeadlineError);      // the device did not finish in time
MUSER_ERROR(DeviceError);        // the device reported a failure (code and place in the facts)
MUSER_ERROR(DeviceMemoryError);  // an allocation was refused (bytes asked, bytes free where known)
MUSER_ERROR(NonFiniteError);     // a NaN or infinity reached the logits
MUSER_ERROR(RollbackError);      // more rows asked back than the undo journal holds
MUSER_ERROR(SnapshotError);  // a snapshot that is damaged or belongs to another model or contract
MUSER_ERROR(ForkError);      // used in a child process forked after load
MUSER_ERROR(ProbeError);     // the load-time arithmetic probe found a wrong bit

#undef MUSER_ERROR

}  // namespace muser
