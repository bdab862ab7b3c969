// Tensors that derive from a layer on a device are those that derive from it in host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "layercast/model/linear.h"
#include "tests/device/device_test.h"
#include "tests/reload/device_rig.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using testing::DeviceEngine;
using testing::EagerSource;
using testing::EngineMemory;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Weights;

// "weight_T", the weight with its columns as rows.
class ColumnsAsRows final : public ColumnParallelLinear {
 public:
  explicit ColumnsAsRows(const LayerContext& context) : ColumnParallelLinear(context, 64, 192, false) {
    const TensorSpec weight = parameters()[0].spec;
    const std::int64_t rows = weight.shape[0];
    AddDerived({{"weight_T", weight.dtype, {64, rows}}, {weight}, [rows](auto sources, auto derived) {
                  for (std::int64_t i = 0; i < rows * 64; ++i) {
                    std::memcpy(derived.data() + (i % 64 * rows + i / 64) * 2, sources[0].data() + i * 2, 2);
                  }
                }});
  }
};

std::unique_ptr<Module> Model() {
  const LayerContext context{.parallel = {1, 2}};
  auto root = std::make_unique<testing::Tree>("Root");
  root->Add("first", std::make_unique<ColumnsAsRows>(context));
  root->Add("last", std::make_unique<RowParallelLinear>(context, 192, 64, false));
  return root;
}

Weights VersionOf(std::uint32_t seed) {
  Weights weights;
  weights.AddRandom({"first.weight", DType::kBF16, {192, 64}}, seed);
  weights.AddRandom({"last.weight", DType::kBF16, {64, 192}}, seed + 100);
  return weights;
}

using DeriveOnDevice = testing::DeviceTest;

TEST_F(DeriveOnDevice, GivesTheBytesOfTheHost) {
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "nvfp4"}) {
    const EngineMemory host(*Model(), *MakeRecipe(recipe));
    const DeviceEngine engine(*device_, *Model(), {.model = {.recipe = recipe}});
    ReceiverOptions options;
    options.chunk_bytes = 5000;
    Receiver on_host(Model(), {1, 2}, {.recipe = recipe}, host.Adopt(), options);
    Receiver on_device(Model(), {1, 2}, {.recipe = recipe}, engine.Adopt(), options);
    for (const std::uint32_t seed : {1U, 2U}) {
      const Digest expected = on_host.ReloadWeights(EagerSource(VersionOf(seed))).served_digest;
      EXPECT_EQ(on_device.ReloadWeights(EagerSource(VersionOf(seed))).served_digest, expected) << recipe;
    }
  }
}

}  // namespace
}  // namespace layercast
