// OpenCudaStream of a build without CUDA; with CUDA, it is in cuda_device_stream.cc.
#include <string>

#include "layercast/error.h"
#include "src/device/cuda/cuda_probe.h"
#include "src/device/device_stream.h"

namespace layercast {

std::shared_ptr<DeviceStream> OpenCudaStream(const Device& device) {
  throw Error(ErrorCode::kUnsupported, "CUDA device " + std::to_string(device.index) + ": " + ProbeCuda().why_none);
}

}  // namespace layercast
