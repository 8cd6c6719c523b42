#define MUSER_TRACED true
#include "metal/kernels/portable.h"
namespace {
#include "mutants.metal"
}
