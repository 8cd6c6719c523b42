// Names of cached machine code, and where the compiler is looked for. Nothing is compiled.
#include "device/cuda/nvrtc.h"

#include <gtest/gtest.h>

#include "errors.h"

namespace muser::device::cuda {
namespace {

CompileRequest request() {
    CompileRequest r;
    r.source = "kernels";
    r.architecture = "sm_90";
    r.driver_version = 13000;
    return r;
}

TEST(Nvrtc, CacheNamesTellSourcesOptionsAndDriversApart) {
    const std::string name = cache_name(request(), "13.0");
    EXPECT_EQ(name, cache_name(request(), "13.0"));
    EXPECT_NE(name, cache_name(request(), "13.1"));
    CompileRequest other = request();
    other.source += " ";
    EXPECT_NE(name, cache_name(other, "13.0"));
    other = request();
    other.architecture = "sm_100";
    EXPECT_NE(name, cache_name(other, "13.0"));
    other = request();
    other.driver_version = 12080;
    EXPECT_NE(name, cache_name(other, "13.0"));
    other = request();
    other.extra = {"--use_fast_math"};
    EXPECT_NE(name, cache_name(other, "13.0"));
}

TEST(Nvrtc, AGivenLibraryIsTheOnlyCandidate) {
    EXPECT_EQ(nvrtc_candidates("/x/libnvrtc.so"), std::vector<std::string>{"/x/libnvrtc.so"});
    EXPECT_GT(nvrtc_candidates("").size(), 3u);
}

TEST(Nvrtc, AMissingCompilerIsAnErrorThatSaysWhereItWasSought) {
    CompileRequest r = request();
    r.library_path = "/nowhere/libnvrtc.so.13";
    try {
        compile(r);
        FAIL();
    } catch (const DeviceError& error) {
        EXPECT_NE(std::string(error.what()).find("/nowhere/libnvrtc.so.13"), std::string::npos);
    }
}

}  // namespace
}  // namespace muser::device::cuda
