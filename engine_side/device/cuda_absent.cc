// A build without CUDA; cuda_reload_stream.cc is the other one.
#include <string>

#include "engine_side/device/reload_stream.h"
#include "layercast/error.h"
#include "src/cuda/probe.h"

namespace layercast {

std::shared_ptr<ReloadStream> OpenCudaReloadStream(const Device& device) {
  throw Error(ErrorCode::kUnsupported, "CUDA device " + std::to_string(device.index) + ": " + ProbeCuda().why_none);
}

}  // namespace layercast
