#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "model/words.h"

namespace muser::model {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what, int code) {
    throw GGUFError(words(path, ": ", what, ": ", std::generic_category().message(code)),
                    {{"path", path}, {"errno", std::to_string(code)}});
}

[[noreturn]] void fail(const std::string& path, const std::string& what, const std::string& found,
                       const std::string& expected) {
    throw GGUFError(words(path, ": ", what, ": found ", found, ", expected ", expected),
                    {{"path", path}, {"found", found}, {"expected", expected}});
}

struct stat measure(int fd, const std::string& path) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) fail(path, "cannot be measured", errno);
    return info;
}

timespec modified(const struct stat& info) {
#ifdef __APPLE__
    return info.st_mtimespec;
#else
    return info.st_mtim;
#endif
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
    // O_NONBLOCK: opening a FIFO must fail the regular-file check, not wait for a writer.
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) fail(path_, "cannot be opened", errno);
    try {
        const struct stat info = measure(fd_, path_);
        if (!S_ISREG(info.st_mode)) fail(path_, "not a regular file", "another kind", "a file");
        if (info.st_size <= 0) fail(path_, "empty file", "0 bytes", "a GGUF file");
        size_ = static_cast<uint64_t>(info.st_size);
        modified_s_ = modified(info).tv_sec;
        modified_ns_ = modified(info).tv_nsec;
        void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
        if (data == MAP_FAILED) fail(path_, "cannot be mapped", errno);
        data_ = static_cast<const std::byte*>(data);
        check_unchanged();
    } catch (...) {
        close();
        throw;
    }
}

MappedFile::~MappedFile() { close(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_s_(other.modified_s_),
      modified_ns_(other.modified_ns_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    if (this == &other) return *this;
    close();
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    modified_s_ = other.modified_s_;
    modified_ns_ = other.modified_ns_;
    return *this;
}

void MappedFile::close() noexcept {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
    if (fd_ >= 0) ::close(fd_);
    data_ = nullptr;
    fd_ = -1;
}

bool MappedFile::advise(Advice advice, uint64_t offset, uint64_t length) const noexcept {
    if (offset >= size_ || length == 0) return false;
    const uint64_t end = offset + std::min(length, size_ - offset);
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t start = offset - offset % page;
    int flag = MADV_NORMAL;
    switch (advice) {
        case Advice::normal:
            flag = MADV_NORMAL;
            break;
        case Advice::sequential:
            flag = MADV_SEQUENTIAL;
            break;
        case Advice::random:
            flag = MADV_RANDOM;
            break;
        case Advice::will_need:
            flag = MADV_WILLNEED;
            break;
        case Advice::dont_need:
            flag = MADV_DONTNEED;
            break;
    }
    return ::madvise(const_cast<std::byte*>(data_) + start, end - start, flag) == 0;
}

void MappedFile::check_unchanged() const {
    const struct stat info = measure(fd_, path_);
    const auto size = static_cast<uint64_t>(info.st_size);
    if (size != size_) {
        fail(path_, "the file has changed size since it was opened", words(size, " bytes"),
             words(size_, " bytes"));
    }
    const timespec time = modified(info);
    if (time.tv_sec != modified_s_ || time.tv_nsec != modified_ns_) {
        fail(path_, "the file has been written since it was opened",
             words("modified at ", time.tv_sec), words("modified at ", modified_s_));
    }
}

}  // namespace muser::model
