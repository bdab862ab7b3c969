// The probe of a build without CUDA; with CUDA, it is in cuda_probe.cc.
#include "src/device/cuda/cuda_probe.h"

namespace layercast {

CudaProbe ProbeCuda() { return {.devices = 0, .why_none = "this build has no CUDA"}; }

}  // namespace layercast
