#include "src/tensor/kernels/instruction_set.h"

#include <hwy/highway.h>

#include <bit>
#include <cstdint>

namespace layercast {

// The best of those that were compiled, as Highway's dispatch picks it: better ones have lower bits.
std::string InstructionSet() {
  const std::int64_t both = hwy::SupportedTargets() & HWY_TARGETS;
  if (both == 0) return hwy::TargetName(HWY_STATIC_TARGET);
  return hwy::TargetName(std::int64_t{1} << std::countr_zero(static_cast<std::uint64_t>(both)));
}

bool IsWide(const std::string& instruction_set) {
  return !instruction_set.starts_with("SSE") && !instruction_set.starts_with("SSSE") && instruction_set != "SCALAR" &&
         instruction_set != "EMU128";
}

}  // namespace layercast
