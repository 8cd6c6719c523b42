// Embedding by many blocks: one per superblock of the row (docs/numerics.md §8).
#include "grid.cuh"

#define MUSER_EMBED_WIDE(name, Row)                                                        \
    extern "C" __global__ void __launch_bounds__(256) muser_wide_##name(                   \
        const EmbedArgs args, const StepValues* step, const uchar* table, float* hidden) { \
        muser_enter();                                                                     \
        const uint id = step->token + step->chained * (step->device_token - step->token);  \
        const uint i = 256 * blockIdx.x + threadIdx.x;                                     \
        if (i < args.hidden) hidden[i] = Row::at(table + args.row_bytes * id, i);          \
    }

MUSER_EMBED_WIDE(embed_q4_K, QuantisedRow<Q4K>)
MUSER_EMBED_WIDE(embed_q5_K, QuantisedRow<Q5K>)
MUSER_EMBED_WIDE(embed_q6_K, QuantisedRow<Q6K>)
MUSER_EMBED_WIDE(embed_q8_0, QuantisedRow<Q80>)
MUSER_EMBED_WIDE(embed_f32, FloatRow<WeightF32>)
MUSER_EMBED_WIDE(embed_f16, FloatRow<WeightF16>)
MUSER_EMBED_WIDE(embed_bf16, FloatRow<WeightBF16>)
