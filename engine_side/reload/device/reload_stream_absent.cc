// OpenCudaReloadStream of a build without CUDA; with CUDA, it is in cuda_reload_stream.cc.
#include <string>

#include "engine_side/reload/device/reload_stream.h"
#include "layercast/error.h"
#include "src/device/cuda/cuda_probe.h"

namespace layercast {

std::shared_ptr<ReloadStream> OpenCudaReloadStream(const Device& device) {
  throw Error(ErrorCode::kUnsupported, "CUDA device " + std::to_string(device.index) + ": " + ProbeCuda().why_none);
}

}  // namespace layercast
