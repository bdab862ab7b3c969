#include "engine_side/reload/pipeline/materialize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

using testing::Rig;

TEST(Materialize, GivesEveryParameterMemoryOfItsSizeAndTakesItBack) {
  Rig rig;
  {
    const PlannedLayer& layer = rig.plan.layers()[rig.LayerOf("model.layers.0.self_attn.qkv_proj")];
    const MaterializedLayer memory = Materialize(rig.plan, layer, rig.work);
    ASSERT_EQ(memory.parameters.size(), 2U);
    EXPECT_EQ(memory.parameters[0].size(), 2U * 512 * 128);
    EXPECT_EQ(memory.parameters[1].size(), 2U * 512);
    EXPECT_EQ(memory.num_bytes(), 2U * 512 * 129);
    EXPECT_EQ(rig.memory.current_bytes(), memory.num_bytes());
  }
  EXPECT_EQ(rig.memory.current_bytes(), 0U);
}

TEST(Materialize, ZeroesPaddingAndWritesNothingElse) {
  Rig rig({}, std::byte{0x77});
  const PlannedLayer& layer = rig.plan.layers()[rig.LayerOf("model.embed_tokens")];
  const MaterializedLayer memory = Materialize(rig.plan, layer, rig.work);
  const std::span<const std::byte> bytes = memory.parameters[0];
  ASSERT_EQ(bytes.size(), 2U * 128 * 128);
  const std::size_t real = 2U * 65 * 128;
  const auto is = [](std::byte value) { return [value](std::byte byte) { return byte == value; }; };
  EXPECT_TRUE(std::ranges::all_of(bytes.first(real), is(std::byte{0x77})));
  EXPECT_TRUE(std::ranges::all_of(bytes.subspan(real), is(std::byte{0})));
}

}  // namespace
}  // namespace layercast
