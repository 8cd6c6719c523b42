// What a warp makes of a superblock of 32 rows (metal/kernels/cuda/r32_mma.cuh), lane by lane on
// the host: its chain is the contract's, bit for bit, for every type, layout and extreme included.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "contract/mat_vec.h"
#include "contract/quantise.h"
#include "tests/cpp/cuda/warp.h"
// Last: it makes macros of MSL's words.
#include "metal/kernels/cuda/r32_mma.cuh"
#include "metal/kernels/cuda/r32_pack.cuh"
#undef device

namespace muser::device::cuda {
namespace {

using contract::BlockForm;
using contract::WeightType;

constexpr size_t kRows = 32;

// ggml's superblocks of 32 rows, and the same interleaved (r32_types.cuh).
struct Rows {
    WeightType type;
    size_t bytes;  // of a row's superblock
    std::vector<std::byte> ggml;
    std::vector<std::byte> group;

    Rows(WeightType t, size_t superblock_bytes) : type(t), bytes(superblock_bytes) {
        ggml.resize(kRows * bytes);
    }
    std::byte* row(size_t r) { return ggml.data() + r * bytes; }

    void interleave(unsigned number) {
        group.assign(kRows * bytes, std::byte{0});
        const auto* first = reinterpret_cast<const unsigned char*>(ggml.data());
        const R32Source from{first, bytes, kRows};
        for (unsigned i = 0; i < kRows * (bytes / 16); ++i) {
            const uint4 piece = r32_piece(from, number, i / 32, i % 32);
            std::memcpy(group.data() + 16 * i, &piece, 16);
        }
        for (unsigned r = 0; type == WeightType::Q6_K && r < kRows; ++r) {
            std::memcpy(group.data() + 512 * 13 + 2 * r, row(r) + 208, 2);
        }
    }
};

// A finite f16 of any size, subnormal ones included.
uint16_t some_half(std::mt19937& random) {
    return static_cast<uint16_t>(random() & 0x8000u) | static_cast<uint16_t>(random() % 0x7c00u);
}
void set_half(std::byte* at, uint16_t half) { std::memcpy(at, &half, 2); }

enum class Fill { random, ones, zeros };

Rows make_rows(WeightType type, Fill fill, std::mt19937& random) {
    const size_t bytes = type == WeightType::Q4_K   ? 144
                         : type == WeightType::Q5_K ? 176
                         : type == WeightType::Q6_K ? 210
                                                    : 272;
    Rows rows(type, bytes);
    for (std::byte& b : rows.ggml) {
        b = fill == Fill::random ? std::byte(random() & 255u)
                                 : std::byte(fill == Fill::ones ? 255 : 0);
    }
    for (size_t r = 0; r < kRows; ++r) {
        std::byte* row = rows.row(r);
        switch (type) {
            case WeightType::Q6_K:
                // All ones are a scale of -1; the least one is the extreme.
                if (fill == Fill::ones) std::fill(row + 192, row + 208, std::byte{0x80});
                if (fill == Fill::zeros) std::fill(row + 192, row + 208, std::byte{0x7f});
                set_half(row + 208, some_half(random));
                break;
            case WeightType::Q8_0:
                for (size_t k = 0; k < 8; ++k) set_half(row + 34 * k, some_half(random));
                break;
            default:
                set_half(row, some_half(random));
                set_half(row + 2, some_half(random));
                break;
        }
    }
    rows.interleave(type == WeightType::Q4_K   ? MUSER_R32_Q4_K
                    : type == WeightType::Q5_K ? MUSER_R32_Q5_K
                    : type == WeightType::Q6_K ? MUSER_R32_Q6_K
                                               : MUSER_R32_Q8_0);
    return rows;
}

BlockForm make_form(std::mt19937& random, int kind) {
    float x[contract::kBlock];
    for (size_t i = 0; i < contract::kBlock; ++i) {
        const float u = static_cast<float>(static_cast<int>(random() % 20001) - 10000) * 1e-4f;
        x[i] = kind == 0 ? u : kind == 1 ? 1.0f : -1.0f;
        if (kind == 3) x[i] = i % 32 == 0 ? 3e4f * u : 1e-3f * u;
        // The largest sums: 32639 = 256 * 127 + 127, its negative, and 32384 = 256 * 127 - 128.
        if (kind == 4) x[i] = 32639.0f * 0x1p-14f;
        if (kind == 5) x[i] = -32639.0f * 0x1p-14f;
        if (kind == 6) x[i] = (i == 77 ? 32639.0f : 32384.0f) * 0x1p-14f;
    }
    BlockForm form;
    contract::quantise(x, contract::kBlock, &form);
    return form;
}

R32Activations activations(const BlockForm& form) {
    R32Activations x;
    std::memset(static_cast<void*>(&x), 0, sizeof x);
    for (unsigned piece = 0; piece < 16; ++piece) {
        std::memcpy(static_cast<void*>(&x.hi[piece]), form.hi + 16 * piece, 16);
        std::memcpy(static_cast<void*>(&x.lo[r32_low_piece(piece)]), form.lo + 16 * piece, 16);
    }
    std::memcpy(x.sums, form.sums, sizeof x.sums);
    x.s = form.s;
    return x;
}

template <class Type>
void expect_the_contracts_bits(Rows& rows, const BlockForm& form, const char* what) {
    ASSERT_EQ(rows.group.size(), r32_group_bytes<Type>());
    alignas(16) std::array<std::byte, 16384> place;
    std::copy(rows.group.begin(), rows.group.end(), place.begin());
    R32Activations x = activations(form);
    std::vector<float2> pairs(kRows * Type::kPairs, float2{NAN, NAN});
    warp::run([&](unsigned lane) {
        // What comes next may lie in both places as soon as they are released.
        const auto release = [&] {
            warp::exchange().meet({});
            if (lane == 0) {
                place.fill(std::byte{0x5a});
                std::memset(static_cast<void*>(&x), 0x5a, sizeof x);
            }
            warp::exchange().meet({});
        };
        Type::step(reinterpret_cast<const uint4*>(place.data()), x, pairs.data(), lane, release);
    });
    for (size_t r = 0; r < kRows; ++r) {
        const float made = r32_chain(pairs.data() + r, Type::kPairs, 0.0f);
        const float expected = contract::row_dot(rows.type, rows.row(r), &form, contract::kBlock);
        ASSERT_EQ(std::bit_cast<uint32_t>(made), std::bit_cast<uint32_t>(expected))
            << what << " row " << r << ": " << made << " beside " << expected;
    }
}

template <class Type>
void check(WeightType type) {
    std::mt19937 random(11 + static_cast<unsigned>(type));
    for (const Fill fill : {Fill::random, Fill::random, Fill::random, Fill::ones, Fill::zeros}) {
        Rows rows = make_rows(type, fill, random);
        for (int kind = 0; kind < 7; ++kind) {
            const BlockForm form = make_form(random, kind);
            expect_the_contracts_bits<Type>(rows, form,
                                            fill == Fill::random ? "random" : "extreme");
            if (testing::Test::HasFatalFailure()) return;
        }
    }
}

TEST(Superblock, Q4K) { check<R32Q4K>(WeightType::Q4_K); }
TEST(Superblock, Q5K) { check<R32Q5K>(WeightType::Q5_K); }
TEST(Superblock, Q6K) { check<R32Q6K>(WeightType::Q6_K); }
TEST(Superblock, Q80) { check<R32Q80>(WeightType::Q8_0); }

}  // namespace
}  // namespace muser::device::cuda
