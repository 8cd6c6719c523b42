#include "metal/kernels/portable.h"
namespace {
#include "cuda_attention.inc"
}
