#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
// Embedding (docs/numerics.md §8): one row of the table to f32. Its weightless norm is
// rms_norm_f32.
#include "float_weights.h"
#include "quant_blocks.h"

// A row of superblocks, element by element. Q6_K rows and Q8_0 rows may begin at even addresses.
template <typename Type>
struct QuantisedRow {
    static inline float at(device const uchar* row, uint i) {
        return Type::weight(row + static_cast<size_t>(i / MUSER_BLOCK) * Type::kBytes,
                            i % MUSER_BLOCK);
    }
};
template <typename Weight>
struct FloatRow {
    static inline float at(device const uchar* row, uint i) {
        return Weight::load(reinterpret_cast<device const typename Weight::Stored*>(row)[i]);
    }
};

template <typename Row>
static inline void embed(constant EmbedArgs& args, constant StepValues* step,
                         device const uchar* table, device float* hidden, uint tid) {
    // All three words are read whatever `chained` says, so that what a dispatch touches does not
    // depend on it.
    const uint id = step->token + step->chained * (step->device_token - step->token);
    device const uchar* row = table + args.row_bytes * id;
    for (uint i = tid; i < args.hidden; i += 1024) hidden[i] = Row::at(row, i);
}

#define MUSER_EMBED(name, Row)                                                           \
    [[max_total_threads_per_threadgroup(1024)]] kernel void name(                        \
        constant EmbedArgs& args [[buffer(0)]], constant StepValues* step [[buffer(1)]], \
        device const uchar* table [[buffer(2)]], device float* hidden [[buffer(3)]],     \
        MUSER_THREAD) {                                                                  \
        embed<Row>(args, step, table, hidden, tid);                                      \
    }                                                                                    \
    MUSER_WIDE_KERNEL(name, EmbedArgs, 3)

MUSER_EMBED(embed_q4_K, QuantisedRow<Q4K>)
MUSER_EMBED(embed_q5_K, QuantisedRow<Q5K>)
MUSER_EMBED(embed_q6_K, QuantisedRow<Q6K>)
MUSER_EMBED(embed_q8_0, QuantisedRow<Q80>)
MUSER_EMBED(embed_f32, FloatRow<WeightF32>)
MUSER_EMBED(embed_f16, FloatRow<WeightF16>)
MUSER_EMBED(embed_bf16, FloatRow<WeightBF16>)
