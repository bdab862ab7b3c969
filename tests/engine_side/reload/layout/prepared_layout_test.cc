// When the magnitudes that a recipe asks for are needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine_side/reload/layout/prepared_layout.h"
#include "tests/support/reload/rig.h"

namespace layercast::testing {
namespace {

// The first chunk that brings a piece of what the tensor helps to scale.
std::uint32_t FirstNeeded(const PreparedLayout& prepared, std::uint32_t tensor) {
  const auto& chunks = prepared.snapshot.schedule.chunks();
  const auto& placements = prepared.plan.placements();
  for (std::uint32_t chunk = 0; chunk < chunks.size(); ++chunk) {
    for (std::uint32_t i = 0; i < chunks[chunk].num_regions; ++i) {
      const Placement& brought = placements[prepared.snapshot.pieces[chunks[chunk].first_region + i].placement];
      for (const Placement& placement : placements) {
        if (placement.tensor == tensor && placement.parameter == brought.parameter) return chunk;
      }
    }
  }
  return static_cast<std::uint32_t>(chunks.size());
}

void ExpectNeededInTime(const RigOptions& options, std::size_t least_requests) {
  const Rig rig(options);
  const PreparedLayout prepared(LoadPlan::Build(*rig.model, rig.manifest), rig.manifest, rig.layout, *rig.recipe, 8192);
  EXPECT_GE(prepared.amax_requests.size(), least_requests);
  for (const AmaxRequest& request : prepared.amax_requests) {
    EXPECT_EQ(request.before_chunk, FirstNeeded(prepared, request.tensor))
        << rig.manifest.entry(request.tensor).spec.name;
  }
  EXPECT_GT(prepared.SessionRequests().back().before_chunk, 0U);
}

TEST(PreparedLayout, MagnitudesOfRowsAreNeededWithTheFirstPieceOfWhatTheyScale) {
  ExpectNeededInTime({.recipe = "fp8_per_channel", .parallel = {.tp_rank = 1, .tp_size = 2}, .layers = 3}, 6);
}

// The gate's and the up-projection's stacks share a parameter: both are needed with the first.
TEST(PreparedLayout, MagnitudesOfStacksAreNeededWithTheFirstPieceOfTheirParameter) {
  ExpectNeededInTime({.recipe = "fp8_per_tensor", .experts = ExpertForm::kStacked}, 2);
}

}  // namespace
}  // namespace layercast::testing
