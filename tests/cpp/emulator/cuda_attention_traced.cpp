#define MUSER_TRACED true
#include "metal/kernels/portable.h"
namespace {
#include "cuda_attention.inc"
}
