#include "audit/random_trace.h"

namespace muser::audit {
namespace {

class Random {  // splitmix64
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    uint32_t below(uint64_t bound) { return static_cast<uint32_t>(next() % bound); }
    uint32_t from(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    bool chance(uint32_t percent) { return below(100) < percent; }

  private:
    uint64_t state_;
};

class Maker {
  public:
    explicit Maker(uint64_t seed) : random_(seed) {}

    Trace make() {
        objects();
        // Command buffers are encoded one by one and committed in that order; sometimes the host
        // waits, or touches memory, on the way.
        const uint32_t buffers = random_.from(1, 3);
        for (uint32_t c = 0; c < buffers; ++c) {
            host();
            event(HostEvent::Kind::begin, c);
            commands();
            host();
            event(HostEvent::Kind::commit, c);
            for (uint32_t w = 0; w <= c; ++w) {
                if (random_.chance(30)) event(HostEvent::Kind::wait, w);
            }
        }
        host();
        state();
        return std::move(trace_);
    }

  private:
    void objects() {
        const uint32_t allocations = random_.from(1, 3);
        for (uint32_t a = 0; a < allocations; ++a) {
            const uint32_t bytes = random_.from(2, 24);
            const uint32_t views = random_.chance(60) ? 1 : 2;
            for (uint32_t v = 0; v < views; ++v) {
                const uint32_t offset = v == 0 ? 0 : random_.below(bytes);
                const uint32_t length = v == 0 ? bytes : random_.from(1, bytes - offset);
                trace_.objects.push_back({"buffer " + std::to_string(trace_.objects.size()),
                                          uint64_t{a} + 1, offset, length, random_.chance(70)});
            }
        }
        for (uint32_t o = 0; o < trace_.objects.size(); ++o) {
            if (random_.chance(50)) trace_.contents.push_back(use(o, Access::read));
        }
    }

    Use use(uint32_t object, Access access) {
        const auto length = static_cast<uint32_t>(trace_.objects[object].length);
        const uint32_t offset = random_.below(length);
        return {object, access, offset, random_.from(1, length - offset), {}};
    }
    Use any_use() {
        const auto access = static_cast<Access>(random_.chance(20) ? 3 : random_.from(1, 2));
        Use made = use(random_.below(trace_.objects.size()), access);
        made.argument = std::to_string(made.object);
        return made;
    }

    void event(HostEvent::Kind kind, uint32_t c) {
        const bool completed = kind != HostEvent::Kind::wait || random_.chance(90);
        trace_.host.push_back({kind, c, completed, {}, {}});
    }
    void host() {
        while (random_.chance(25)) {
            Use touched = any_use();
            if (touched.access == Access::read_write) touched.access = Access::write;
            trace_.host.push_back(
                {HostEvent::Kind::access, kNone, true, std::move(touched), "touch"});
        }
    }

    void commands() {
        CommandBuffer buffer;
        const uint32_t encoders = random_.chance(60) ? 1 : 2;
        for (uint32_t e = 0; e < encoders; ++e) {
            Encoder encoder{random_.chance(85), {}};
            const uint32_t length = random_.from(1, 8);
            for (uint32_t i = 0; i < length; ++i) {
                if (random_.chance(35)) {
                    encoder.commands.push_back({Command::Kind::barrier, barrier()});
                } else {
                    encoder.commands.push_back({Command::Kind::dispatch, dispatch()});
                }
            }
            buffer.encoders.push_back(std::move(encoder));
        }
        trace_.command_buffers.push_back(std::move(buffer));
    }
    uint32_t barrier() {
        Barrier made{random_.chance(50), {}, {}};
        if (!made.broad) {
            for (uint32_t o = 0; o < trace_.objects.size(); ++o) {
                if (random_.chance(50)) made.objects.push_back(o);
            }
        }
        trace_.barriers.push_back(std::move(made));
        return static_cast<uint32_t>(trace_.barriers.size()) - 1;
    }
    uint32_t dispatch() {
        Dispatch made;
        made.label = "closure " + std::to_string(random_.below(6));
        made.kernel = "kernel";
        const uint32_t uses = random_.from(1, 3);
        for (uint32_t u = 0; u < uses; ++u) made.uses.push_back(any_use());
        trace_.dispatches.push_back(std::move(made));
        return static_cast<uint32_t>(trace_.dispatches.size()) - 1;
    }

    // Some graphs state producers: the true ones, or by a label that may be wrong.
    void state() {
        if (random_.chance(40)) {
            state_producers(trace_);
            return;
        }
        for (Dispatch& made : trace_.dispatches) {
            for (const Use& read : made.uses) {
                if (reads(read.access) && random_.chance(20)) {
                    made.producers.push_back({read.object, read.offset, read.length,
                                              "closure " + std::to_string(random_.below(6)),
                                              kNone});
                }
            }
        }
    }

    Random random_;
    Trace trace_;
};

}  // namespace

Trace random_trace(uint64_t seed) { return Maker(seed).make(); }

}  // namespace muser::audit
