// Whether this process has a CUDA device to work on, and why not: asked before anything that needs one, and by tests
// that skip without one. Compiles, and answers, in a build without CUDA too.
#pragma once

#include <string>

namespace layercast {

// Value.
struct CudaProbe {
  int devices = 0;
  std::string why_none;  // where there is none: "this build has no CUDA", or the driver's words

  explicit operator bool() const { return devices > 0; }
};

CudaProbe ProbeCuda();

}  // namespace layercast
