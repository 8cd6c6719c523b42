#include "metal/kernels/portable.h"
namespace {
#include "mutants.metal"
}
