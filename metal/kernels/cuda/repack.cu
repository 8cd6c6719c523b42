// ggml rows to groups of 32 interleaved rows, at load (layout: r32_types.cuh). A thread makes 16
// bytes of the result.
#include "r32_pack.cuh"

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
        const size_t first = chunk / args.blocks * 32;
        const size_t b = chunk % args.blocks;
        const R32Source from = {in + (first * args.blocks + b) * bytes,
                                static_cast<size_t>(args.blocks) * bytes,
                                static_cast<uint>(args.rows - first)};
        uchar* to = out + chunk * chunk_bytes;
        *reinterpret_cast<uint4*>(to + 16 * (32 * piece + lane)) =
            r32_piece(from, args.type, piece, lane);
        if (args.type == MUSER_R32_Q6_K && piece == 0) {
            reinterpret_cast<ushort*>(to + 512 * 13)[lane] =
                static_cast<ushort>(from.half(lane, 208));
        }
    }
}
