#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "contract/ftz.h"
#include "contract/half.h"
#include "contract/quantise.h"

namespace muser::cpu_test {
namespace {

constexpr std::byte kGuardByte{0xa5};

}  // namespace

uint64_t Random::next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float Random::uniform() {
    return static_cast<float>(static_cast<int32_t>(next() >> 40) - (1 << 23)) * 0x1p-23f;
}

std::vector<float> floats(Random& random, size_t n, Data data) {
    std::vector<float> v(n);
    for (float& x : v) {
        if (data == Data::plain || random.one_in(2)) {
            x = random.uniform() * 4;
        } else if (data == Data::damaged && random.one_in(40)) {
            x = std::bit_cast<float>(random.pick({0x7f800000u, 0xff800000u, 0x7fc00000u}));
        } else if (random.one_in(4)) {
            x = std::bit_cast<float>(random.pick({0u, 0x80000000u, 1u, 0x807fffffu, 0x00800000u}));
        } else {
            // Any finite value; mostly within what products of two still hold.
            const uint32_t exponent = random.one_in(8) ? random.below(255) : 97 + random.below(60);
            x = std::bit_cast<float>((static_cast<uint32_t>(random.next()) & 0x807fffffu) |
                                     exponent << 23);
        }
    }
    return v;
}

std::vector<uint16_t> halves(Random& random, size_t n, Data data) {
    std::vector<uint16_t> v(n);
    for (uint16_t& x : v) {
        if (data == Data::plain || random.one_in(2)) {
            x = contract::f32_to_f16(random.uniform() * 4);
        } else {
            x = static_cast<uint16_t>(random.next());
            const bool finite = (x & 0x7c00u) != 0x7c00u;
            if (!finite && !(data == Data::damaged && random.one_in(3))) x &= 0x83ffu;
        }
    }
    return v;
}

bool same(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

void expect_same(std::span<const float> found, std::span<const float> expected, const char* what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_TRUE(same(found[i], expected[i]))
            << what << "[" << i << "] of " << found.size() << ": found " << found[i]
            << ", expected " << expected[i] << std::hex << " (bits "
            << std::bit_cast<uint32_t>(found[i]) << ", " << std::bit_cast<uint32_t>(expected[i])
            << ")";
    }
}

void Launch::Free::operator()(std::byte* p) const { std::free(p); }

Launch& Launch::bytes(unsigned index, std::span<const std::byte> content) {
    Buffer& buffer = buffers_[index];
    buffer.length = content.size();
    const size_t total = (content.size() + 2 * kGuard + 63) / 64 * 64;
    buffer.memory.reset(static_cast<std::byte*>(std::aligned_alloc(64, total)));
    std::fill_n(buffer.memory.get(), total, kGuardByte);
    std::copy(content.begin(), content.end(), buffer.memory.get() + kGuard);
    return *this;
}

void Launch::run(Random& random) {
    std::vector<std::byte*> pointers(11, nullptr);
    for (auto& [index, buffer] : buffers_) pointers[index] = buffer.memory.get() + kGuard;
    const device::cpu::Call call = {args_.data() + 1, pointers.data()};
    const uint64_t units = kernel_.work(call).units;
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (uint64_t unit = 0; unit < units;) {
        const uint64_t end = std::min<uint64_t>(units, unit + random.between(1, 7));
        ranges.emplace_back(unit, end);
        unit = end;
    }
    for (size_t i = ranges.size(); i > 1; --i) {
        std::swap(ranges[i - 1], ranges[random.below(static_cast<uint32_t>(i))]);
    }
    {
        contract::FlushSubnormals mode;
        for (const auto& [begin, end] : ranges) kernel_.run(call, begin, end);
    }
    for (const auto& [index, buffer] : buffers_) {
        const std::byte* p = buffer.memory.get();
        EXPECT_EQ(std::count(p, p + kGuard, kGuardByte), ptrdiff_t{kGuard})
            << "written before argument " << index;
        const std::byte* after = p + kGuard + buffer.length;
        EXPECT_EQ(std::count(after, after + kGuard, kGuardByte), ptrdiff_t{kGuard})
            << "written past argument " << index;
    }
}

std::vector<std::byte> empty_form(size_t n) {
    return std::vector<std::byte>(MUSER_BLOCK_FORM_BYTES(n), std::byte{0x5a});
}

void expect_block_form(const Launch& launch, unsigned index, std::span<const float> x) {
    const size_t n = x.size();
    std::vector<contract::BlockForm> blocks(n / MUSER_BLOCK);
    contract::quantise(x.data(), n, blocks.data());
    const std::byte* form = launch.result<std::byte>(index).data();
    for (size_t b = 0; b < blocks.size(); ++b) {
        const auto hi = launch.result<int8_t>(index).subspan(b * MUSER_BLOCK, MUSER_BLOCK);
        const auto lo =
            launch.result<int8_t>(index).subspan(MUSER_BLOCK_LO(n) + b * MUSER_BLOCK, MUSER_BLOCK);
        ASSERT_TRUE(std::equal(hi.begin(), hi.end(), blocks[b].hi)) << "hi plane of block " << b;
        ASSERT_TRUE(std::equal(lo.begin(), lo.end(), blocks[b].lo)) << "lo plane of block " << b;
        const std::byte* sums = form + MUSER_BLOCK_SUMS(n) + b * sizeof blocks[b].sums;
        ASSERT_EQ(std::memcmp(sums, blocks[b].sums, sizeof blocks[b].sums), 0)
            << "sums of block " << b;
        float s = 0;
        std::memcpy(&s, form + MUSER_BLOCK_SCALES(n) + 4 * b, 4);
        ASSERT_TRUE(same(s, blocks[b].s))
            << "s of block " << b << ": " << s << ", expected " << blocks[b].s;
    }
}

}  // namespace muser::cpu_test
