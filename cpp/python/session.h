// One engine as Python holds it: who may call, what happens in forked children and on closing.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <string>

#include <unistd.h>

#include "errors.h"
#include "metal/engine.h"

namespace muser::python {

namespace py = pybind11;

class Session {
  public:
    Session(const std::string& path, const EngineConfig& config) : process_(getpid()) {
        py::gil_scoped_release unlocked;
        engine_ = std::make_unique<Engine>(path, config);
    }
    ~Session() {
        // A forked child has the objects but none of the threads behind them: it leaves them alone.
        if (getpid() != process_) {
            (void)engine_.release();
            return;
        }
        py::gil_scoped_release unlocked;
        engine_.reset();
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Runs `work(engine)` without the GIL, as the only caller.
    template <class Work>
    auto exclusively(Work&& work) {
        const Turn turn(*this);
        py::gil_scoped_release unlocked;
        return work(*engine_);
    }
    // For short questions: the same turn, with the GIL held.
    template <class Work>
    auto ask(Work&& work) {
        const Turn turn(*this);
        return work(*engine_);
    }

    // Idempotent; waits for a step in flight.
    void close() {
        if (getpid() != process_) throw_fork();
        py::gil_scoped_release unlocked;
        closing_ = true;
        while (busy_.exchange(true)) usleep(1000);
        engine_.reset();
        busy_ = false;
    }
    bool closed() const { return closing_ || !engine_ || !engine_->dead().empty(); }

  private:
    struct Turn {
        explicit Turn(Session& session) : session_(session) {
            if (getpid() != session.process_) throw_fork();
            if (session.closing_) throw EngineClosed("the engine is closed; load it again", {});
            if (session.busy_.exchange(true)) {
                throw EngineBusy("another call is running on this engine", {});
            }
            if (!session.engine_) {
                session.busy_ = false;
                throw EngineClosed("the engine is closed; load it again", {});
            }
        }
        ~Turn() { session_.busy_ = false; }
        Session& session_;
    };
    [[noreturn]] static void throw_fork() {
        throw ForkError(
            "the engine was loaded before a fork; its threads are not in this process. Load it "
            "in the child",
            {});
    }

    pid_t process_;
    std::unique_ptr<Engine> engine_;
    std::atomic<bool> busy_{false};
    std::atomic<bool> closing_{false};
};

// Asked by the engine now and then while it waits: true once Ctrl-C (or another signal whose
// handler raises) has come. The exception stays set for the caller to find.
inline bool signal_pending() {
    py::gil_scoped_acquire locked;
    return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

void bind_model(py::module_& module);
void bind_engine(py::module_& module);
void bind_kernels(py::module_& module);
void bind_bandwidth(py::module_& module);
void bind_audit(py::module_& module);  // after bind_engine: adds to its Engine

}  // namespace muser::python
