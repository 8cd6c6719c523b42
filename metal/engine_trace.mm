// One step on the emulator with every load and store judged against what the launchers declared.
#import "metal/engine_impl.h"

#include <algorithm>

#if !defined(__APPLE__)
#include "device/emulator/emulator_device.h"
#import "metal/portable/portable.h"
#endif
#include "metal/recording.h"

namespace muser {

#if defined(__APPLE__)

StepTrace Engine::trace(std::span<const uint32_t>, float*, bool) {
    throw ConfigError("the tracer belongs to the emulator; use device 'emulator' elsewhere",
                      {{"device", "metal"}});
}

#else

namespace {

// Leaves tracing off again, however the step ends.
class Tracing {
  public:
    explicit Tracing(emulator::EmulatorDevice& device) : device_(device) {
        device_.set_tracing(true);
    }
    ~Tracing() { device_.set_tracing(false); }
    Tracing(const Tracing&) = delete;
    Tracing& operator=(const Tracing&) = delete;

  private:
    emulator::EmulatorDevice& device_;
};

uint64_t bytes_of(const std::vector<emulator::ByteRange>& ranges) {
    uint64_t bytes = 0;
    for (const emulator::ByteRange& range : ranges) bytes += range.end - range.begin;
    return bytes;
}

}  // namespace

StepTrace Engine::trace(std::span<const uint32_t> tokens, float* logits, bool greedy) {
    Impl& self = *impl_;
    auto* device =
        dynamic_cast<emulator::EmulatorDevice*>(&portable::device_of(self.context.device()));
    if (device == nullptr) {
        throw ConfigError("only the emulator traces; load with device 'emulator'",
                          {{"device", self.context.description().name}});
    }
    std::vector<Capture> none;
    const Tracing tracing(*device);
    device->take_report();
    if (greedy) {
        std::vector<uint32_t> ids(tokens.size());
        std::vector<float> rows(tokens.size() * geometry().vocab);
        this->greedy(tokens.front(), ids.size(), {}, ids.data(), rows.data(), {});
        std::copy(rows.end() - geometry().vocab, rows.end(), logits);
    } else if (tokens.size() == 1) {
        decode(tokens.front(), logits, {}, none, {});
    } else {
        prefill(tokens.data(), tokens.size(), false, logits, {});
    }
    const emulator::TraceReport report = device->take_report();

    StepTrace trace;
    trace.loads = report.loads;
    trace.stores = report.stores;
    trace.suppressed = report.suppressed;
    for (const emulator::Finding& finding : report.findings) {
        trace.findings.push_back({emulator::name(finding.kind), finding.kernel, finding.closure,
                                  finding.argument, finding.text()});
    }
    for (const emulator::DispatchTrace& dispatch : report.dispatches) {
        TracedDispatch traced{dispatch.closure, dispatch.kernel, {}};
        const std::vector<std::string_view> names = argument_names(dispatch.kernel);
        for (const emulator::ArgumentTrace& argument : dispatch.arguments) {
            const bool named = argument.argument >= 1 && argument.argument <= names.size();
            traced.arguments.push_back({named ? std::string(names[argument.argument - 1])
                                              : std::to_string(argument.argument),
                                        bytes_of(argument.read), bytes_of(argument.written)});
        }
        trace.dispatches.push_back(std::move(traced));
    }
    return trace;
}

#endif

}  // namespace muser
