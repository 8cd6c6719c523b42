// The products' kernels for avx2.
#include "device/cpu/products/byte_vector.h"
#include "device/cpu/products/ggml_rows.h"
#include "device/cpu/products/kernels.h"

namespace muser::device::cpu {
namespace {

constexpr KernelImpl kKernels[] = {
    MUSER_PRODUCT("q4_K", "", BlockQ4_K, ggml_rows<BlockQ4_K>),
    MUSER_PRODUCT("q5_K", "", BlockQ5_K, ggml_rows<BlockQ5_K>),
    MUSER_PRODUCT("q6_K", "", BlockQ6_K, ggml_rows<BlockQ6_K>),
    MUSER_PRODUCT("q8_0", "", BlockQ8_0, ggml_rows<BlockQ8_0>),
    MUSER_PRODUCT("q4_K", "_r16", BlockQ4_K, byte_columns<BytesQ4_K>),
    MUSER_PRODUCT("q5_K", "_r16", BlockQ5_K, byte_columns<BytesQ5_K>),
    MUSER_PRODUCT("q6_K", "_r16", BlockQ6_K, byte_columns<BytesQ6_K>),
    MUSER_PRODUCT("q8_0", "_r16", BlockQ8_0, byte_columns<BytesQ8_0>),
    MUSER_FLOAT_PRODUCT("f32", 4, float_rows<float>),
    MUSER_FLOAT_PRODUCT("f16", 2, float_rows<Half>),
    MUSER_FLOAT_PRODUCT("bf16", 2, float_rows<BFloat>),
};

}  // namespace

KernelTable product_kernels_avx2() { return {kKernels, sizeof kKernels / sizeof *kKernels}; }

}  // namespace muser::device::cpu
