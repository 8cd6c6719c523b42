// A device that fails at every point it can: the error that belongs to it, no row, a dead engine,
// and (under AddressSanitizer) nothing left behind or used after it is gone.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "errors.h"
#include "metal/engine.h"

namespace muser {
namespace {

constexpr float kUntouched = 7.0F;

EngineConfig config(std::map<std::string, int> faults) {
    EngineConfig out;
    out.context = 64;
    out.threads = 2;
    out.wait_seconds = 60.0;
    out.faults = std::move(faults);
    for (int i = 0; i < 32; ++i) out.rope_inverse.push_back(std::pow(500000.0, -i / 32.0));
    return out;
}

std::string fact(const Error& error, const std::string& name) {
    for (const auto& [key, value] : error.facts()) {
        if (key == name) return value;
    }
    return {};
}

void decode(Engine& engine, uint32_t token, std::vector<float>& row) {
    std::vector<Capture> none;
    engine.decode(token, row.data(), {}, none, {});
}

std::vector<float> blank(const Engine& engine, size_t rows = 1) {
    return std::vector<float>(engine.geometry().vocab * rows, kUntouched);
}

void expect_dead(Engine& engine, const std::vector<float>& row) {
    EXPECT_EQ(row, std::vector<float>(row.size(), kUntouched)) << "a failed step handed out a row";
    EXPECT_FALSE(engine.dead().empty());
    std::vector<float> other = row;
    EXPECT_THROW(decode(engine, 1, other), EngineClosed);
    const uint32_t tokens[] = {1, 2};
    std::vector<float> two = blank(engine, 2);
    EXPECT_THROW(engine.teacher_forced(tokens, 2, two.data(), {}), EngineClosed);
}

// The error of the step that fails; the ones before it must work.
template <class Expected>
void expect_failure(const std::map<std::string, int>& faults, int good_steps,
                    const std::map<std::string, std::string>& facts) {
    for (const char* schedule : {"production", "lean"}) {
        for (const char* device : {"cpu", "emulator"}) {
            SCOPED_TRACE(std::string(schedule) + " on " + device);
            EngineConfig settings = config(faults);
            settings.schedule = schedule;
            settings.device = device;
            Engine engine(MUSER_TEST_FILE, settings);
            std::vector<float> row = blank(engine);
            for (int i = 0; i < good_steps; ++i) decode(engine, 3, row);
            row = blank(engine);
            try {
                decode(engine, 5, row);
                ADD_FAILURE() << "nothing was thrown";
            } catch (const Expected& error) {
                for (const auto& [name, value] : facts) EXPECT_EQ(fact(error, name), value);
            }
            expect_dead(engine, row);
        }
    }
}

// Command buffer 1 is the probe at load.
TEST(Fault, ErrorAtADispatch) {
    expect_failure<DeviceError>({{"device_error_at_dispatch", 12}}, 0,
                                {{"code", "3"}, {"meaning", "page fault"}});
}

TEST(Fault, TheClosureAndLayerAreNamed) {
    EngineConfig settings = config({{"device_error_at_dispatch", 60}});
    Engine engine(MUSER_TEST_FILE, settings);
    const PlanDispatch at = engine.plan(0).dispatches[59];
    ASSERT_TRUE(at.closure.starts_with("blk.")) << at.closure;
    std::vector<float> row = blank(engine);
    try {
        decode(engine, 5, row);
        ADD_FAILURE() << "nothing was thrown";
    } catch (const DeviceError& error) {
        EXPECT_EQ(fact(error, "closure"), at.closure);
        EXPECT_EQ("blk." + fact(error, "layer"), at.closure.substr(0, at.closure.rfind('.')));
    }
    expect_dead(engine, row);
}

TEST(Fault, ErrorDuringTheWait) {
    expect_failure<DeviceError>({{"device_error_in_wait", 3}}, 1, {{"code", "1"}});
}

TEST(Fault, ErrorInACommandBuffer) {
    expect_failure<DeviceError>({{"device_error_in_buffer", 4}}, 2, {{"code", "2"}});
}

TEST(Fault, OutOfMemoryWhileRunning) {
    expect_failure<DeviceMemoryError>({{"device_out_of_memory", 3}}, 1, {{"code", "8"}});
}

TEST(Fault, AHangIsADeadline) {
    for (const char* device : {"cpu", "emulator"}) {
        EngineConfig settings = config({{"device_hang", 2}});
        settings.device = device;
        settings.wait_seconds = 1.0;
        Engine engine(MUSER_TEST_FILE, settings);
        std::vector<float> row = blank(engine);
        const auto start = std::chrono::steady_clock::now();
        EXPECT_THROW(decode(engine, 5, row), DeadlineError);
        const auto took = std::chrono::steady_clock::now() - start;
        EXPECT_GE(took, std::chrono::milliseconds(990));
        EXPECT_LT(took, std::chrono::seconds(4));
        expect_dead(engine, row);
    }
}

// The deadline passes while the device is at work, and the engine goes away under it: what the
// device reads, the mapped file among it, must stay until it is done.
TEST(Fault, ADeadlineWhileTheDeviceWorks) {
    const uint32_t tokens[] = {3, 1, 4};
    for (const char* device : {"emulator", "cpu"}) {
        for (const auto& [count, greedy] : {std::pair{1u, false}, {3u, false}, {3u, true}}) {
            EngineConfig settings = config({});
            settings.device = device;
            settings.wait_seconds = 1e-5;
            bool late = false;
            {
                Engine engine(MUSER_TEST_FILE, settings);
                std::vector<float> rows = blank(engine, count);
                try {
                    if (greedy) {
                        uint32_t ids[3];
                        engine.greedy(3, count, {}, ids, rows.data(), {});
                    } else {
                        engine.teacher_forced(tokens, count, rows.data(), {});
                    }
                } catch (const DeadlineError&) {
                    late = true;
                    expect_dead(engine, rows);
                }
            }
            // The cpu device may have been quick enough; the emulator needs a hundred times that.
            EXPECT_TRUE(late || std::string(device) == "cpu");
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
        }
    }
}

TEST(Fault, EveryAllocationMayBeRefused) {
    int refused = 0;
    for (int k = 1;; ++k) {
        try {
            Engine engine(MUSER_TEST_FILE, config({{"device_refuse_allocation", k}}));
            break;
        } catch (const DeviceMemoryError& error) {
            EXPECT_FALSE(fact(error, "bytes").empty()) << error.what();
            ++refused;
        }
    }
    EXPECT_GT(refused, 50);
}

TEST(Fault, OneBufferOfALane) {
    const uint32_t tokens[] = {3, 1, 4};
    for (int buffer = 2; buffer <= 4; ++buffer) {
        for (const char* fault :
             {"device_error_in_buffer", "device_error_in_wait", "device_out_of_memory"}) {
            SCOPED_TRACE(std::string(fault) + " " + std::to_string(buffer));
            Engine engine(MUSER_TEST_FILE, config({{fault, buffer}}));
            std::vector<float> rows = blank(engine, 3);
            EXPECT_THROW(engine.teacher_forced(tokens, 3, rows.data(), {}), Error);
            EXPECT_EQ(rows, blank(engine, 3));
            std::vector<float> row = blank(engine);
            expect_dead(engine, row);
        }
    }
}

TEST(Fault, OneBufferOfAGreedyLane) {
    constexpr uint32_t kNone = 0xffffffffu;
    for (int buffer = 2; buffer <= 4; ++buffer) {
        for (const char* fault :
             {"device_error_in_buffer", "device_error_in_wait", "device_out_of_memory"}) {
            SCOPED_TRACE(std::string(fault) + " " + std::to_string(buffer));
            Engine engine(MUSER_TEST_FILE, config({{fault, buffer}}));
            std::vector<float> rows = blank(engine, 3);
            std::vector<uint32_t> ids(3, kNone);
            EXPECT_THROW(engine.greedy(3, 3, {}, ids.data(), rows.data(), {}), Error);
            EXPECT_EQ(ids, std::vector<uint32_t>(3, kNone));
            EXPECT_EQ(rows, blank(engine, 3));
            EXPECT_EQ(engine.position(), 0u);
            std::vector<float> row = blank(engine);
            expect_dead(engine, row);
        }
    }
}

TEST(Fault, ALaneWhoseFirstBufferHangs) {
    const uint32_t tokens[] = {3, 1, 4};
    EngineConfig settings = config({{"device_hang", 2}});
    settings.wait_seconds = 1.0;
    Engine engine(MUSER_TEST_FILE, settings);
    std::vector<float> rows = blank(engine, 3);
    EXPECT_THROW(engine.teacher_forced(tokens, 3, rows.data(), {}), DeadlineError);
    EXPECT_EQ(rows, blank(engine, 3));
}

TEST(Fault, TheSoundTwin) {
    Engine engine(MUSER_TEST_FILE, config({}));
    Engine twin(MUSER_TEST_FILE, config({{"device_error_in_buffer", 99}}));
    std::vector<float> row = blank(engine);
    std::vector<float> other = blank(engine);
    for (const uint32_t token : {3u, 1u, 4u, 1u, 5u}) {
        decode(engine, token, row);
        decode(twin, token, other);
        EXPECT_EQ(row, other);
    }
    EXPECT_TRUE(engine.dead().empty());
}

}  // namespace
}  // namespace muser
