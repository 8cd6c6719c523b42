// ggml rows to groups of 32 interleaved rows, at load (layout: r32_types.cuh). A thread makes 16
// bytes of the result.
#include "r32_types.cuh"

// 16 bytes at an even address.
static __device__ __forceinline__ uint4 load_16(const uchar* at) {
    const ushort* h = reinterpret_cast<const ushort*>(at);
    return make_uint4(
        h[0] | (static_cast<uint>(h[1]) << 16), h[2] | (static_cast<uint>(h[3]) << 16),
        h[4] | (static_cast<uint>(h[5]) << 16), h[6] | (static_cast<uint>(h[7]) << 16));
}

static __device__ __forceinline__ uint4 r32_piece(const uchar* block, uint type, uint piece) {
    if (type != MUSER_R32_Q8_0) return load_16(block + 16 * piece);
    if (piece > 0) return load_16(block + 34 * ((piece - 1) / 2) + 2 + 16 * ((piece - 1) & 1));
    uint words[4];
    for (uint i = 0; i < 4; ++i) {
        const uint first = *reinterpret_cast<const ushort*>(block + 68 * i);
        const uint second = *reinterpret_cast<const ushort*>(block + 68 * i + 34);
        words[i] = first | (second << 16);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

extern "C" __global__ void muser_repack_r32(const MuserRepackArgs args) {
    const uint pieces[MUSER_R32_TYPES] = {9, 11, 13, 17};
    const uint block_bytes[MUSER_R32_TYPES] = {144, 176, 210, 272};
    const uint count = pieces[args.type];
    const uint bytes = block_bytes[args.type];
    const size_t chunk_bytes = static_cast<size_t>(32) * bytes;
    const uchar* in = reinterpret_cast<const uchar*>(args.rows_in);
    uchar* out = reinterpret_cast<uchar*>(args.out);
    // One warp per piece of a superblock of a group.
    const uint lane = threadIdx.x & 31u;
    const size_t groups = (args.rows + 31) / 32;
    const size_t total = groups * args.blocks * count;
    const size_t stride = static_cast<size_t>(gridDim.x) * (blockDim.x >> 5);
    for (size_t i = static_cast<size_t>(blockIdx.x) * (blockDim.x >> 5) + (threadIdx.x >> 5);
         i < total; i += stride) {
        const uint piece = static_cast<uint>(i % count);
        const size_t chunk = i / count;  // group * blocks + superblock
        const size_t row = chunk / args.blocks * 32 + lane;
        const size_t b = chunk % args.blocks;
        const bool here = row < args.rows;
        const uchar* block = in + (row * args.blocks + b) * bytes;
        uchar* to = out + chunk * chunk_bytes;
        const uint4 words = here ? r32_piece(block, args.type, piece) : make_uint4(0, 0, 0, 0);
        *reinterpret_cast<uint4*>(to + 16 * (32 * piece + lane)) = words;
        if (args.type == MUSER_R32_Q6_K && piece == 0) {
            const ushort d = here ? *reinterpret_cast<const ushort*>(block + 208) : ushort(0);
            reinterpret_cast<ushort*>(to + 512 * 13)[lane] = d;
        }
    }
}
