// A warp on the host: 32 threads, and what lanes do together. Enough of CUDA for
// metal/kernels/cuda/r32_mma.cuh, which is included after this.
#pragma once

#include <array>
#include <barrier>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace muser::device::cuda::warp {

inline constexpr unsigned kLanes = 32;

// What every lane has put down, once all have.
class Exchange {
  public:
    using Words = std::array<uint32_t, 6>;
    const std::array<Words, kLanes>& meet(const Words& mine) {
        words_[lane] = mine;
        barrier_.arrive_and_wait();
        taken_[lane] = words_;
        barrier_.arrive_and_wait();
        return taken_[lane];
    }
    static thread_local inline unsigned lane = 0;

  private:
    std::barrier<> barrier_{kLanes};
    std::array<Words, kLanes> words_{};
    std::array<std::array<Words, kLanes>, kLanes> taken_{};
};

inline Exchange& exchange() {
    static Exchange one;
    return one;
}

// Runs `body(lane)` in every lane.
inline void run(const std::function<void(unsigned)>& body) {
    exchange();
    std::vector<std::jthread> lanes;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        lanes.emplace_back([&body, lane] {
            Exchange::lane = lane;
            body(lane);
        });
    }
}

// m16n8k32 as the PTX manual lays its fragments out: lane (g, j) = (lane / 4, lane mod 4) holds of
// A rows g (a0, a2) and g + 8 (a1, a3), of B column g, each four bytes from 4 j (a0, a1, b0) and 16
// + 4 j on; of C columns 2 j and 2 j + 1 of rows g (c0, c1) and g + 8 (c2, c3).
template <class A>
void matrix_product(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                    uint32_t b1) {
    const auto& all = exchange().meet({a0, a1, a2, a3, b0, b1});
    const unsigned g = Exchange::lane / 4;
    const unsigned j = Exchange::lane % 4;
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = g + 8 * (i / 2);
        const unsigned column = 2 * j + i % 2;
        for (unsigned k = 0; k < 32; ++k) {
            const unsigned owner = k % 16 / 4;
            const unsigned shift = 8 * (k % 4);
            const uint32_t a = all[4 * (row % 8) + owner][row / 8 + 2 * (k / 16)];
            const uint32_t b = all[4 * column + owner][4 + k / 16];
            c[i] += static_cast<A>(a >> shift) * static_cast<int8_t>(b >> shift);
        }
    }
}

}  // namespace muser::device::cuda::warp

#define __device__
#define __forceinline__ inline

struct int4 {
    int x, y, z, w;
};
struct int2 {
    int x, y;
};
struct float2 {
    float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }

inline int __shfl_xor_sync(unsigned, int value, int mask) {
    using muser::device::cuda::warp::Exchange;
    const auto& all =
        muser::device::cuda::warp::exchange().meet({static_cast<uint32_t>(value), 0, 0, 0, 0, 0});
    return static_cast<int>(all[Exchange::lane ^ static_cast<unsigned>(mask)][0]);
}
// Byte i of the result is byte (selector >> 4 i) & 7 of the eight.
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
    const uint64_t bytes = uint64_t{y} << 32 | x;
    uint32_t out = 0;
    for (unsigned i = 0; i < 4; ++i) {
        const auto byte = static_cast<uint32_t>(bytes >> (8 * ((selector >> (4 * i)) & 7)) & 255);
        out |= byte << (8 * i);
    }
    return out;
}
inline void r32_mma(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                    uint32_t b1) {
    muser::device::cuda::warp::matrix_product<uint8_t>(c, a0, a1, a2, a3, b0, b1);
}
inline void r32_mma_signed(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                           uint32_t b0, uint32_t b1) {
    muser::device::cuda::warp::matrix_product<int8_t>(c, a0, a1, a2, a3, b0, b1);
}
