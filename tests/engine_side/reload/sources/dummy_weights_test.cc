#include "engine_side/reload/sources/dummy_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/tensor/element.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

TEST(DummyWeights, AnEngineStartsEmptyAndTakesTheNextVersion) {
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    SCOPED_TRACE(recipe);
    ReceiverRig rig({.recipe = recipe, .parallel = {1, 2}});
    const ReloadReport report = rig.receiver->ReloadWeights(FromDummy(7));
    EXPECT_EQ(report.version.lineage, "dummy");
    EXPECT_EQ(report.version.step, 7U);
    EXPECT_EQ(report.bytes, report.bytes_total);
    const ServedBytes seven = rig.engine.Served();
    rig.receiver->ReloadWeights(FromDummy(8));
    EXPECT_THAT(Differences(rig.engine.Served(), seven), Not(IsEmpty()));
    rig.receiver->ReloadWeights(FromDummy(7));
    EXPECT_THAT(Differences(rig.engine.Served(), seven), IsEmpty());

    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(1))), IsEmpty());
    EXPECT_TRUE(rig.engine.CanariesAreAlive());
  }
}

TEST(DummyWeights, ValuesAreSmallSpreadAndZeroInPadding) {
  const auto model = RigModel({.parallel = {2, 4}});  // this rank has one word of 32 rows
  const LoadPlan plan = LoadPlan::WithoutTensors(*model);
  DummyWeights weights(plan, 2, 1);
  for (const PlannedParameter& parameter : plan.parameters()) {
    const std::optional<NamedTensor> tensor = weights.Next();
    ASSERT_TRUE(tensor);
    EXPECT_EQ(tensor->name, parameter.spec.name);
    const std::int64_t elements = parameter.spec.num_elements();
    const std::int64_t real = parameter.padding.empty() ? elements : parameter.spec.shape[1];
    double sum = 0;
    double squares = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      const double value = ElementValue(tensor->tensor.dtype, tensor->tensor.data, i) / kDummyMagnitude;
      ASSERT_LE(std::abs(value), 1.0);
      ASSERT_TRUE(i < real || value == 0) << tensor->name << " " << i;
      sum += value;
      squares += value * value;
    }
    const auto count = static_cast<double>(real);
    EXPECT_NEAR(sum / count, 0, 6 / std::sqrt(3 * count)) << tensor->name;  // six standard errors of a uniform value
    EXPECT_NEAR(squares / count, 1.0 / 3, 6 * 0.298 / std::sqrt(count)) << tensor->name;
  }
  EXPECT_FALSE(weights.Next());
}

TEST(DummyWeights, RanksAgreeOnWhatTheyAllHold) {
  const auto bytes_of = [](int rank, const std::string& name) {
    const auto model = RigModel({.parallel = {rank, 2}});
    const LoadPlan plan = LoadPlan::WithoutTensors(*model);
    DummyWeights weights(plan, rank, 1);
    while (const std::optional<NamedTensor> tensor = weights.Next()) {
      const auto* const data = reinterpret_cast<const char*>(tensor->tensor.data);
      if (tensor->name == name) return std::string(data, static_cast<std::size_t>(tensor->tensor.num_bytes()));
    }
    return std::string();
  };
  EXPECT_EQ(bytes_of(0, "model.norm.weight"), bytes_of(1, "model.norm.weight"));
  EXPECT_NE(bytes_of(0, "model.norm.weight"), "");
  EXPECT_NE(bytes_of(0, "model.layers.0.mlp.down_proj.weight"), bytes_of(1, "model.layers.0.mlp.down_proj.weight"));
}

}  // namespace
}  // namespace layercast::testing
