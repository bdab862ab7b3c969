// Whether this process has a CUDA device to work on, and if not, why. Asked before anything that needs one, and by
// tests that are skipped without one. It also compiles, and answers, in a build without CUDA.
#pragma once

#include <string>

namespace layercast {

// Value.
struct CudaProbe {
  int devices = 0;
  std::string why_none;  // if there is none: "this build has no CUDA", or the driver's words

  explicit operator bool() const { return devices > 0; }
};

CudaProbe ProbeCuda();

}  // namespace layercast
