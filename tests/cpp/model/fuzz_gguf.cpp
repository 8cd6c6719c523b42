// libFuzzer target over the whole loader. Built with clang; start it from a small valid file:
//
//   muser_gguf_mutate --write corpus/tiny.gguf
//   muser_gguf_fuzz -max_len=65536 corpus
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gguf_builder.h"
#include "mutate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    // A copy of exactly this size, aligned as a mapping is: reads beyond it are seen.
    muser::test::Buffer file(size);
    if (size != 0) std::memcpy(file.data(), data, size);
    muser::test::load_and_walk({file.data(), file.size()});
    return 0;
}
