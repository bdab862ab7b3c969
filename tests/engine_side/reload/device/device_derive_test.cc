// Tensors that derive from a layer on a device are those that derive from it in host memory, and are made on the
// device. Linked with a device that is played, and with a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/model/linear.h"
#include "tests/support/device/device_test.h"
#include "tests/support/reload/device_rig.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using testing::DeviceEngine;
using testing::EagerSource;
using testing::EngineMemory;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Weights;

constexpr std::int64_t kCols = 64, kRows = 192;
constexpr ParallelConfig kRank{1, 2};
constexpr int kLayers = 6;

// "weight_T", the weight with its columns as rows; "part_T", some of its rows in pairs, their columns first; "decay",
// -exp(bias). A host program's: "twice", each element of the weight and of the bias, two times.
class Deriving final : public ColumnParallelLinear {
 public:
  Deriving(const LayerContext& context, bool by_host) : ColumnParallelLinear(context, kCols, kRows, true) {
    const TensorSpec weight = parameters()[0].spec;
    const TensorSpec bias = parameters()[1].spec;
    const std::int64_t rows = weight.shape[0];
    using View = DerivedTensor::StridedView;
    AddDerived({{"weight_T", weight.dtype, {kCols, rows}}, {weight}, View{{1, kCols}, 0}});
    AddDerived({{"part_T", weight.dtype, {5, kCols, 2}}, {weight}, View{{3 * kCols, 1, kCols}, 7 * kCols}});
    AddDerived({{"decay", DType::kF32, bias.shape}, {bias}, DerivedTensor::NegatedExponential{}});
    if (!by_host) return;
    AddDerived({{"twice", DType::kBF16, {2, rows * kCols + rows}}, {weight, bias}, [](auto sources, auto derived) {
                  for (const std::size_t first : {std::size_t{0}, derived.size() / 2}) {
                    std::ranges::copy(sources[0], derived.data() + first);
                    std::ranges::copy(sources[1], derived.data() + first + sources[0].size());
                  }
                }});
  }
};

std::unique_ptr<Module> Model(bool by_host) {
  const LayerContext context{.parallel = kRank};
  auto root = std::make_unique<testing::Tree>("Root");
  for (int i = 0; i < kLayers; ++i)
    root->Add("layer" + std::to_string(i), std::make_unique<Deriving>(context, by_host));
  root->Add("last", std::make_unique<RowParallelLinear>(context, kRows, kCols, false));
  return root;
}

Weights VersionOf(std::uint32_t seed) {
  Weights weights;
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = "layer" + std::to_string(i);
    weights.AddRandom({layer + ".weight", DType::kBF16, {kRows, kCols}}, ++seed);
    weights.AddRandom({layer + ".bias", DType::kBF16, {kRows}}, ++seed);
  }
  weights.AddRandom({"last.weight", DType::kBF16, {kCols, kRows}}, ++seed);
  return weights;
}

class DeriveOnDevice : public testing::DeviceTest {
 protected:
  struct Engine {
    Engine(testing::TestDevice& device, const std::string& recipe, bool by_host, std::uint64_t chunk_bytes = 5000)
        : memory(device, *Model(by_host), {.model = {.recipe = recipe}}),
          receiver(Model(by_host), kRank, {.recipe = recipe}, memory.Adopt(), Options(chunk_bytes)) {}

    static ReceiverOptions Options(std::uint64_t chunk_bytes) {
      ReceiverOptions options;
      options.chunk_bytes = chunk_bytes;
      return options;
    }
    DeviceEngine memory;
    Receiver receiver;
  };
};

TEST_F(DeriveOnDevice, GivesTheBytesOfTheHost) {
  for (const std::string& recipe : KnownRecipes()) {
    for (const bool by_host : {false, true}) {
      const EngineMemory host(*Model(by_host), *MakeRecipe(recipe));
      Receiver on_host(Model(by_host), kRank, {.recipe = recipe}, host.Adopt());
      Engine engine(*device_, recipe, by_host);
      for (const std::uint32_t seed : {1U, 2U}) {
        const Digest expected = on_host.ReloadWeights(EagerSource(VersionOf(seed))).served_digest;
        EXPECT_EQ(engine.receiver.ReloadWeights(EagerSource(VersionOf(seed))).served_digest, expected) << recipe;
      }
    }
  }
}

// Beyond what TheHostWaitsForLayersNotForTensors allows any layer there is nothing, and what comes down is digests of
// leaves and words of faults.
TEST_F(DeriveOnDevice, CostsNoWaitAndBringsNothingToTheHost) {
  for (const std::string& recipe : KnownRecipes()) {
    Engine engine(*device_, recipe, false, 4U << 20);
    const Weights weights = VersionOf(1);
    const std::size_t waits = device_->waits();
    const std::size_t brought = device_->bytes_brought();
    engine.receiver.Stage(EagerSource(weights));
    EXPECT_LE(device_->waits() - waits, kLayers + 1U + 8U) << recipe;
    EXPECT_LE(device_->bytes_brought() - brought, engine.receiver.report().staged_bytes / 50) << recipe;
  }
}

TEST_F(DeriveOnDevice, OfAHostProgramsFunctionCostsOneWaitForALayer) {
  Engine engine(*device_, "fp8_per_channel", true, 4U << 20);
  const std::size_t waits = device_->waits();
  engine.receiver.Stage(EagerSource(VersionOf(1)));
  EXPECT_LE(device_->waits() - waits, 2U * kLayers + 1U + 8U);
}

TEST_F(DeriveOnDevice, AllocatesNothingInAReloadAfterTheFirst) {
  Engine engine(*device_, "fp8_per_block", true);
  engine.receiver.ReloadWeights(EagerSource(VersionOf(1)));
  const std::size_t first = device_->allocations();
  engine.receiver.ReloadWeights(EagerSource(VersionOf(2)));
  EXPECT_EQ(device_->allocations(), first);
}

TEST_F(DeriveOnDevice, RefusesAVersionThatMakesInfinitiesInTheWordsOfTheHost) {
  const EngineMemory host(*Model(false), *MakeRecipe("nvfp4"));
  Receiver on_host(Model(false), kRank, {.recipe = "nvfp4"}, host.Adopt());
  Engine engine(*device_, "nvfp4", false);
  const Digest good = engine.receiver.ReloadWeights(EagerSource(VersionOf(1))).served_digest;
  Weights bad = VersionOf(2);
  constexpr std::uint16_t kHundred = 0x42C8;  // in bf16: e^100 is no number in fp32
  std::memcpy(bad.bytes(testing::IndexOf(bad, "layer3.bias")).data() + (kRows / 2 + 17) * 2, &kHundred, 2);
  const std::string words = ErrorOf([&] { on_host.ReloadWeights(EagerSource(bad)); }, ErrorCode::kCorrupt);
  EXPECT_THAT(words,
              HasSubstr("layer layer3: 'layer3.decay', which derives from its parameters, expected finite values, "
                        "got NaN or infinity at element 17"));
  EXPECT_EQ(ErrorOf([&] { engine.receiver.ReloadWeights(EagerSource(bad)); }, ErrorCode::kCorrupt), words);
  EXPECT_EQ(engine.receiver.captured().ServedDigest(), good);
}

}  // namespace
}  // namespace layercast
