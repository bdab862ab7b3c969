// What a process has one of for each CUDA device, such as its context or a pool of memory. Used by the sources of this
// folder.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>
#include <vector>

#include "src/device/cuda/call.h"

namespace layercast {

// A value for each device, made by `make(device)` when it is first asked for, and kept. Resource; thread-safe.
template <class Value>
class PerDevice {
 public:
  // `asked_for` is the device that an error names if there is no driver.
  PerDevice(Value (*make)(int device), int asked_for) : make_(make), made_(CountDevices(asked_for)) {}

  // The device's value. Throws kUnsupported if there is no such device, and what `make` throws; `make` is then called
  // again the next time.
  const Value& Of(int device) {
    if (device < 0 || static_cast<std::size_t>(device) >= made_.size()) {
      CheckCuda(cudaErrorInvalidDevice, "cudaInitDevice", device);
    }
    Made& made = made_[static_cast<std::size_t>(device)];
    std::call_once(made.once, [&] { made.value = make_(device); });
    return made.value;
  }

 private:
  struct Made {
    std::once_flag once;
    Value value{};
  };

  static std::size_t CountDevices(int asked_for) {
    int devices = 0;
    CheckCuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount", asked_for);
    return static_cast<std::size_t>(devices);
  }

  Value (*const make_)(int device);
  std::vector<Made> made_;
};

}  // namespace layercast
