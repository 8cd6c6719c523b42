// Asking for the device. With a driver it is made; without one the error says what is missing.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "device/device.h"
#include "errors.h"

namespace muser::device {
namespace {

TEST(CudaDevice, IsListed) {
    const auto names = device_names();
    EXPECT_NE(std::find(names.begin(), names.end(), "cuda"), names.end());
}

TEST(CudaDevice, IsMadeOrSaysWhyNot) {
    const bool driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr;
    try {
        const auto device = make_device("cuda", {});
        EXPECT_TRUE(driver);
        EXPECT_EQ(device->name(), "cuda");
        EXPECT_EQ(device->isa().substr(0, 3), "sm_");
    } catch (const DeviceError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("NVIDIA driver"), std::string::npos) << text;
        EXPECT_EQ(text.find("libcuda.so.1 was not found") != std::string::npos, !driver) << text;
        ASSERT_FALSE(error.facts().empty());
        EXPECT_EQ(error.facts().front(), (std::pair<std::string, std::string>{"device", "cuda"}));
    }
}

}  // namespace
}  // namespace muser::device
