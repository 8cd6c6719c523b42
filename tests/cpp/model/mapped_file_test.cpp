// Mapping a file, and noticing that it has changed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "expect_refusal.h"
#include "gguf_builder.h"
#include "model/mapped_file.h"

namespace muser::test {
namespace {

using model::Advice;
using model::MappedFile;

TEST(MappedFile, BytesAsWritten) {
    const Buffer content = tiny_model().build();
    const TemporaryFile file(content);
    const MappedFile mapped(file.path());
    ASSERT_EQ(mapped.size(), content.size());
    EXPECT_EQ(std::memcmp(mapped.bytes().data(), content.data(), content.size()), 0);
    EXPECT_NO_THROW(mapped.check_unchanged());
    for (const Advice advice : {Advice::sequential, Advice::random, Advice::will_need,
                                Advice::dont_need, Advice::normal}) {
        EXPECT_TRUE(mapped.advise(advice));
        EXPECT_TRUE(mapped.advise(advice, 5000, ~uint64_t{0}));
        EXPECT_FALSE(mapped.advise(advice, content.size(), 1));
    }
    EXPECT_EQ(std::memcmp(mapped.bytes().data(), content.data(), content.size()), 0);
}

TEST(MappedFile, Moves) {
    const TemporaryFile file(tiny_model().build());
    MappedFile first(file.path());
    const std::byte* data = first.bytes().data();
    MappedFile second(std::move(first));
    EXPECT_EQ(second.bytes().data(), data);
    MappedFile third(file.path());
    third = std::move(second);
    EXPECT_EQ(third.bytes().data(), data);
    EXPECT_NO_THROW(third.check_unchanged());
}

TEST(MappedFile, WhatCannotBeMapped) {
    const auto refused = [](const std::string& path) {
        try {
            const MappedFile mapped(path);
        } catch (const GGUFError& error) {
            EXPECT_EQ(fact(error, "path"), path);
            return std::string(error.what());
        }
        ADD_FAILURE() << "mapped " << path;
        return std::string();
    };
    EXPECT_NE(refused("/nonexistent/model.gguf").find("cannot be opened"), std::string::npos);
    EXPECT_NE(refused(std::filesystem::temp_directory_path().string()).find("not a regular file"),
              std::string::npos);
    const TemporaryFile empty{Buffer()};
    EXPECT_NE(refused(empty.path()).find("empty file"), std::string::npos);
    // A FIFO without a writer must not make the caller wait.
    const std::string fifo = empty.path() + ".fifo";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    EXPECT_NE(refused(fifo).find("not a regular file"), std::string::npos);
    std::filesystem::remove(fifo);
}

TEST(MappedFile, AChangedFileIsNoticed) {
    const TemporaryFile file(tiny_model().build());
    const MappedFile mapped(file.path());
    file.truncate(mapped.size() - 1);
    const GGUFError shorter = refusal("changed size", [&] { mapped.check_unchanged(); });
    EXPECT_EQ(fact(shorter, "expected"), std::to_string(mapped.size()) + " bytes");
    file.truncate(mapped.size());
    // Same size again, but written since.
    const timespec past[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, file.path().c_str(), past, 0), 0);
    refusal("has been written", [&] { mapped.check_unchanged(); });
}

}  // namespace
}  // namespace muser::test
