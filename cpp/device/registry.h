// What each device's library gives the registry: one factory, throwing as make_device() does.
#pragma once

#include <memory>

#include "device/device.h"

namespace muser::device {

std::unique_ptr<Device> make_cpu_device(const Options& options);       // muser_device_cpu
std::unique_ptr<Device> make_cuda_device(const Options& options);      // muser_device_cuda
std::unique_ptr<Device> make_emulator_device(const Options& options);  // muser_device_emulator

}  // namespace muser::device
