#include "engine_side/reload/commit/staging.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

using testing::Rig;

TEST(Staging, IsOneAlignedBlockThatHoldsEachKernelTensorOnce) {
  Rig rig({.recipe = "fp8_per_channel"});
  CountingMemory memory(rig.host);
  const auto place = MakeHostPlace(rig.pool, memory, rig.memory);
  const Staging staging(rig.layout, *place);
  EXPECT_EQ(memory.allocations(), 1U);
  EXPECT_EQ(memory.current_bytes(), rig.layout.staged_bytes());
  const std::byte* free_from = staging.BytesOf(rig.layout.tensors().front()).data();
  std::uint64_t bytes = 0;
  for (const KernelTensor& tensor : rig.layout.tensors()) {
    const std::span<std::byte> span = staging.BytesOf(tensor);
    EXPECT_GE(span.data(), free_from);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(span.data()) % 64, 0U);
    free_from = span.data() + span.size();
    bytes += span.size();
  }
  EXPECT_LT(rig.layout.staged_bytes(), bytes + 64 * rig.layout.tensors().size());
}

}  // namespace
}  // namespace layercast
