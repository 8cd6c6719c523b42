#include "metal/kernels/portable.h"
namespace {
#include "access_forms.inc"
}
