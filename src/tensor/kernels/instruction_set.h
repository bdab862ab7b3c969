// For which of the processor's instruction sets the kernels of this build are run here. Used by `layercast doctor`.
#pragma once

#include <string>

namespace layercast {

// As Highway calls it: "AVX3", "AVX2", "SSE4", "NEON".
std::string InstructionSet();
// Whether a kernel for that one computes with vectors as wide as the processors of the last ten years have them.
bool IsWide(const std::string& instruction_set);

}  // namespace layercast
