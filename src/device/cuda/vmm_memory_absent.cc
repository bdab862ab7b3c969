// In a build without CUDA there is no device memory.
#include "layercast/error.h"
#include "src/device/cuda/open_vmm_memory.h"

namespace layercast {

std::unique_ptr<SleepableMemory> OpenVmmMemory(int /*device*/) {
  throw Error(ErrorCode::kUnsupported, "this build has no CUDA");
}

}  // namespace layercast
