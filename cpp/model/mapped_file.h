// A file mapped read-only for its whole life.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "errors.h"

namespace muser::model {

enum class Advice {
    normal,
    sequential,  // one pass, as when weights are hashed or repacked
    random,      // single rows, as from the embedding table
    will_need,   // start reading now
    dont_need,   // the pages may go (a later access reads the file again)
};

// A shared, read-only mapping. The file must not shrink while it is mapped: an access beyond its
// new end is SIGBUS, which no library can turn into an exception. check_unchanged() tells sooner.
class MappedFile {
  public:
    // GGUFError (facts path, errno, found, expected): not there, not a regular file, empty, or
    // changed size between the measurement and the mapping.
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
    uint64_t size() const noexcept { return size_; }
    const std::string& path() const noexcept { return path_; }

    // Hints for [offset, offset + length), cut to the file and widened to whole pages. A system
    // that refuses a hint changes speed only, so the answer is a flag, not an error.
    bool advise(Advice advice, uint64_t offset, uint64_t length) const noexcept;
    bool advise(Advice advice) const noexcept { return advise(advice, 0, size_); }

    // GGUFError if the file's size or modification time is no longer what it was at open.
    void check_unchanged() const;

  private:
    void close() noexcept;

    std::string path_;
    int fd_ = -1;
    const std::byte* data_ = nullptr;
    uint64_t size_ = 0;
    int64_t modified_s_ = 0;
    int64_t modified_ns_ = 0;
};

}  // namespace muser::model
