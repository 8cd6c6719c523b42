// Damages the header of a GGUF file COUNT times and loads each result. Exits 0 when every one was
// loaded or refused with GGUFError, and prints how many of each and the intact file's census.
//
//   muser_gguf_mutate FILE COUNT SEED
//   muser_gguf_mutate --write FILE      writes a small valid file, as a start for the fuzzer
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "gguf_builder.h"
#include "model/model_weights.h"
#include "mutate.h"

namespace {

using muser::test::Buffer;

Buffer read_file(const char* path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    Buffer bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
}

int run(const char* path, uint64_t count, uint64_t seed) {
    const Buffer file = read_file(path);
    uint64_t header = 0;
    {
        const auto model = muser::model::Model::from_bytes({file.data(), file.size()});
        header = model.census().header_bytes;
        std::printf("%s: %llu tensors, %llu weight bytes, %llu header bytes, %llu bytes a token\n",
                    path, static_cast<unsigned long long>(model.census().tensors),
                    static_cast<unsigned long long>(model.census().weight_bytes),
                    static_cast<unsigned long long>(header),
                    static_cast<unsigned long long>(model.census().bytes_per_token));
        for (const std::string& warning : model.warnings()) {
            std::printf("warning: %s\n", warning.c_str());
        }
    }
    muser::test::HeaderMutator mutator(file, header, seed);
    std::map<std::string, uint64_t> reasons;
    for (uint64_t i = 0; i < count; ++i) {
        std::string message;
        const bool accepted = muser::test::load_and_walk(mutator.next(), &message);
        ++reasons[accepted ? "accepted" : muser::test::reason(message)];
    }
    for (const auto& [reason, times] : reasons) {
        std::printf("%8llu  %s\n", static_cast<unsigned long long>(times), reason.c_str());
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3 && std::string(argv[1]) == "--write") {
        const Buffer file = muser::test::tiny_model({.layers = 1, .vocab = 6}).build();
        std::ofstream out(argv[2], std::ios::binary);
        out.write(reinterpret_cast<const char*>(file.data()),
                  static_cast<std::streamsize>(file.size()));
        return out.good() ? 0 : 1;
    }
    if (argc != 4) {
        std::fprintf(stderr, "usage: %s FILE COUNT SEED | --write FILE\n", argv[0]);
        return 2;
    }
    try {
        return run(argv[1], std::strtoull(argv[2], nullptr, 10),
                   std::strtoull(argv[3], nullptr, 10));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
