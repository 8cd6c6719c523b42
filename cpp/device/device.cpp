#include "device/device.h"

#include <cstring>

#include "errors.h"

namespace muser::device {

void Device::read(const stream::Buffer& from, uint64_t offset, void* to, uint64_t bytes) {
    std::memcpy(to, from.contents + offset, bytes);
}

void Device::write(stream::Buffer& to, uint64_t offset, const void* from, uint64_t bytes) {
    std::memcpy(to.contents + offset, from, bytes);
}

}  // namespace muser::device
