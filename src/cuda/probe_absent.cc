// The probe of a build without CUDA; probe.cc is the other one.
#include "src/cuda/probe.h"

namespace layercast {

CudaProbe ProbeCuda() { return {.devices = 0, .why_none = "this build has no CUDA"}; }

}  // namespace layercast
