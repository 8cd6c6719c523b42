#include "mutate.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "model/kv_planes.h"
#include "model/model_weights.h"

namespace muser::test {

HeaderMutator::HeaderMutator(Buffer file, size_t header, uint64_t seed)
    : file_(std::move(file)),
      intact_(file_.begin(), file_.begin() + static_cast<std::ptrdiff_t>(header)),
      header_(header),
      random_(seed) {}

void HeaderMutator::damage() {
    constexpr std::array<uint64_t, 16> nasty{0,
                                             1,
                                             2,
                                             13,
                                             0x7F,
                                             0xFF,
                                             0x100,
                                             0x7FFFFFFF,
                                             0x80000000,
                                             0xFFFFFFFF,
                                             0x7FFFFFFFFFFFFFFF,
                                             0x8000000000000000,
                                             0xFFFFFFFFFFFFFFFF,
                                             0x4000000000000001,
                                             0x7FFFFFFFFFFFFFC0,
                                             0x100000000};
    const size_t at = random_.below(header_);
    switch (random_.below(6)) {
        case 0:
            file_[at] ^= static_cast<std::byte>(1U << random_.below(8));
            break;
        case 1:
            file_[at] = static_cast<std::byte>(random_.next() & 0xff);
            break;
        case 2:
        case 3: {  // a field of 4 or 8 bytes
            const size_t width = random_.below(2) == 0 ? 4 : 8;
            const uint64_t value = nasty[random_.below(nasty.size())] + random_.below(2);
            std::memcpy(file_.data() + at, &value, std::min(width, header_ - at));
            break;
        }
        case 4: {  // bytes repeated: the rest of the header moves up
            const size_t n = 1 + random_.below(std::min<size_t>(16, header_ - at));
            std::memmove(file_.data() + at + n, file_.data() + at, header_ - at - n);
            break;
        }
        default: {  // bytes lost: the rest of the header moves down
            const size_t n = 1 + random_.below(std::min<size_t>(16, header_ - at));
            std::memmove(file_.data() + at, file_.data() + at + n, header_ - at - n);
            break;
        }
    }
}

model::Bytes HeaderMutator::next() {
    std::copy(intact_.begin(), intact_.end(), file_.begin());
    if (random_.below(16) == 0) return {file_.data(), random_.below(file_.size())};
    const uint64_t times = 1 + random_.below(3);
    for (uint64_t i = 0; i < times; ++i) damage();
    return {file_.data(), file_.size()};
}

namespace {

void walk(const model::Model& m) {
    volatile uint64_t sink = 0;
    for (const std::string_view token : m.tokenizer().tokens) sink = sink + token.size();
    for (const std::string_view merge : m.tokenizer().merges) {
        if (!merge.empty()) sink = sink + static_cast<unsigned char>(merge.back());
    }
    for (const model::Weight* w : m.weights()) {
        sink = sink + std::to_integer<unsigned>(w->data[0]) +
               std::to_integer<unsigned>(w->data[w->bytes - 1]);
    }
    for (const model::ByteRange& range : m.fingerprint_ranges()) {
        sink = sink + std::to_integer<unsigned>(m.bytes()[range.offset + range.length - 1]);
    }
    model::KvPlanes planes(m.geometry(), m.geometry().context, model::KvType::F16);
    planes.append();
    sink = sink + model::memory_estimate(m.geometry(), m.geometry().context, model::KvType::F32,
                                         m.census().weight_bytes)
                      .total();
}

}  // namespace

bool load_and_walk(model::Bytes file, std::string* message) {
    try {
        walk(model::Model::from_bytes(file));
        return true;
    } catch (const GGUFError& error) {
        if (message != nullptr) *message = error.what();
        return false;
    }
}

std::string reason(const std::string& message) {
    return message.substr(0, std::min(message.find(':'), message.find(" at offset")));
}

}  // namespace muser::test
