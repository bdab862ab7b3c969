// A build without CUDA; cuda_device_stream.cc is the other one.
#include <string>

#include "engine_side/device/device_stream.h"
#include "layercast/error.h"
#include "src/cuda/probe.h"

namespace layercast {

std::shared_ptr<DeviceStream> OpenCudaStream(const Device& device) {
  throw Error(ErrorCode::kUnsupported, "CUDA device " + std::to_string(device.index) + ": " + ProbeCuda().why_none);
}

}  // namespace layercast
