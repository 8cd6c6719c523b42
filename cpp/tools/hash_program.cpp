// muser_hash: the row hashes of a decode, from C++ alone. It runs where Python does not, such as
// under qemu-user as another processor.
//
//   muser_hash FILE TOKENS ROPE [DEVICE [ISA [THREADS [SCHEDULE [KV]]]]]
//
// TOKENS: ids as 1,2,3. ROPE: the head_dim / 2 inverse frequencies as hexadecimal floats, separated
// by commas (float.hex of muser.rope.inverse_frequencies). KV: f16 or f32. One line per token:
// position, token, argmax, SHA-256 of the little-endian float32 row. Then `run` and the SHA-256 of
// all rows together, which is what tests/data/golden_hashes.json holds. Last line: device, isa and
// threads as used.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "errors.h"
#include "metal/engine.h"
#include "tools/sha256.h"

static_assert(std::endian::native == std::endian::little, "rows are hashed as they lie in memory");

namespace {

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts(1);
    for (const char c : text) {
        if (c == ',') {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    return parts;
}

int run(int argc, char** argv) {
    const auto argument = [&](int i, const char* fallback) {
        return std::string(argc > i ? argv[i] : fallback);
    };
    muser::EngineConfig config;
    for (const std::string& part : split(argv[3])) {
        config.rope_inverse.push_back(std::strtod(part.c_str(), nullptr));
    }
    const std::vector<std::string> ids = split(argv[2]);
    config.device = argument(4, "cpu");
    config.isa = argument(5, "");
    config.threads = std::atoi(argument(6, "0").c_str());
    config.schedule = argument(7, "production");
    config.kv_dtype = argument(8, "f16");
    config.context = std::max<size_t>(ids.size(), 1);
    muser::Engine engine(argv[1], config);
    std::vector<float> row(engine.geometry().vocab);
    std::vector<float> rows;
    std::vector<muser::Capture> none;
    for (const std::string& id : ids) {
        const auto position = static_cast<unsigned long>(engine.position());
        const auto token = static_cast<uint32_t>(std::strtoul(id.c_str(), nullptr, 10));
        engine.decode(token, row.data(), {}, none, {});
        const auto best = std::max_element(row.begin(), row.end()) - row.begin();
        std::printf("%lu %u %ld %s\n", position, token, static_cast<long>(best),
                    muser::tools::sha256_hex(row.data(), row.size() * sizeof(float)).c_str());
        rows.insert(rows.end(), row.begin(), row.end());
    }
    std::printf("run %s\n",
                muser::tools::sha256_hex(rows.data(), rows.size() * sizeof(float)).c_str());
    const muser::DeviceDescription device = engine.device();
    std::printf("# %s %s %d\n", device.name.c_str(), device.isa.c_str(), device.threads);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) {
        std::fprintf(stderr,
                     "usage: muser_hash FILE TOKENS ROPE "
                     "[DEVICE [ISA [THREADS [SCHEDULE [KV]]]]]\n");
        return 2;
    }
    try {
        return run(argc, argv);
    } catch (const muser::Error& error) {
        std::fprintf(stderr, "muser_hash: %s: %s\n", error.kind(), error.what());
        return 1;
    }
}
