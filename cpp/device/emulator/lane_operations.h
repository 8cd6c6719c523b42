// What a lane asks of the emulator: the operations behind MSL's SIMD-group and threadgroup
// functions. Called on the lane's own fiber.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muser::emulator {

struct uint3 {
    uint32_t x, y, z;
};

// Vectors that memory sees as one access of 8 or 16 bytes, as MSL's are: copied through the
// compiler's vector type.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wnested-anon-types"
#endif
#define MUSER_VECTOR(Name, Element, bytes, ...)            \
    struct alignas(bytes) Name {                           \
        using Whole [[gnu::vector_size(bytes)]] = Element; \
        union {                                            \
            __extension__ struct { Element __VA_ARGS__; }; \
            Whole whole;                                   \
        };                                                 \
        Name() {}                                          \
        Name(const Name& other) : whole(other.whole) {}    \
        Name& operator=(const Name& other) {               \
            whole = other.whole;                           \
            return *this;                                  \
        }                                                  \
    }
MUSER_VECTOR(uint2, uint32_t, 8, x, y);
MUSER_VECTOR(uint4, uint32_t, 16, x, y, z, w);
MUSER_VECTOR(float4, float, 16, x, y, z, w);
#undef MUSER_VECTOR
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

// Waits until every lane of the threadgroup is at the same barrier. flags: 1 device memory, 2
// threadgroup memory.
void lane_barrier(unsigned flags);
// The value of another lane of the SIMD group: lane `operand`, or this lane xor `operand`.
uint32_t lane_shuffle(uint32_t value, uint32_t operand, bool exclusive_or);
// The largest value among the lanes of the SIMD group.
uint32_t lane_max(uint32_t value);
// The n-th array a kernel declares is the same memory for all lanes of its threadgroup, and not
// initialised.
void* lane_threadgroup_array(size_t bytes, size_t alignment, const char* name);

}  // namespace muser::emulator
