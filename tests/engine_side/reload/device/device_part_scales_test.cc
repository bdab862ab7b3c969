// Parts of a fused layer that come as codes with a scale each, of an engine on a device: the bytes of one in host
// memory, brought to one scale on the device. Linked with a device that is played, and with a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/model/linear.h"
#include "layercast/model/quantized_form.h"
#include "tests/support/device/device_test.h"
#include "tests/support/reload/device_rig.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using testing::DeviceEngine;
using testing::EagerSource;
using testing::EngineMemory;
using testing::Weights;

constexpr std::int64_t kPartRows = 96, kPartCols = 64;  // of gate, and of up
constexpr int kPartLayers = 6;
constexpr ParallelConfig kPartRank{1, 2};

std::unique_ptr<Module> PartsModel(const std::string& recipe) {
  const LayerContext context{.parallel = kPartRank};
  auto root = std::make_unique<testing::Tree>("Root");
  for (int i = 0; i < kPartLayers; ++i) {
    auto& layer = root->Add("layer" + std::to_string(i), std::make_unique<testing::Tree>());
    auto& fused = layer.Add(
        "gate_up_proj",
        std::make_unique<MergedColumnParallelLinear>(
            context, kPartCols, std::vector<MergedShard>{{"gate_proj", kPartRows}, {"up_proj", kPartRows}}, false));
    fused.SetQuantization(true, recipe == "nvfp4" ? QuantizedForm::Nvfp4() : QuantizedForm{});
  }
  return root;
}

std::vector<std::byte> RandomCodes(std::int64_t count, unsigned below, std::mt19937& random) {
  std::vector<std::byte> codes(static_cast<std::size_t>(count));
  for (std::byte& code : codes) code = static_cast<std::byte>(random() % below);
  return codes;
}

// The scales of gate and up differ in some layers, and are alike in others.
Weights PartsVersion(const std::string& recipe, std::uint32_t seed) {
  constexpr unsigned kNan = 0x7F;
  Weights weights;
  std::mt19937 random(seed);
  for (int i = 0; i < kPartLayers; ++i) {
    for (const char* part : {"gate_proj", "up_proj"}) {
      const std::string weight = "layer" + std::to_string(i) + "." + part + ".weight";
      const float scale = i % 3 == 0 ? 0.25F : 0.01F * static_cast<float>(1 + random() % 50);
      if (recipe == "fp8_per_tensor") {
        weights.AddBytes({weight, DType::kF8E4M3, {kPartRows, kPartCols}},
                         RandomCodes(kPartRows * kPartCols, kNan, random));
        weights.Add({weight + "_scale", DType::kF32, {1}}, {scale});
      } else {
        weights.AddBytes({weight, DType::kU8, {kPartRows, kPartCols / 2}},
                         RandomCodes(kPartRows * kPartCols / 2, 256, random));
        weights.AddBytes({weight + "_scale", DType::kF8E4M3, {kPartRows, kPartCols / 16}},
                         RandomCodes(kPartRows * kPartCols / 16, kNan, random));
        weights.Add({weight + "_scale_2", DType::kF32, {1}}, {scale});
      }
    }
  }
  return weights;
}

using PartScalesOnDevice = testing::DeviceTest;

TEST_F(PartScalesOnDevice, GiveTheBytesOfTheHostWithoutAWaitOrAByteBroughtThere) {
  for (const std::string recipe : {"fp8_per_tensor", "nvfp4"}) {
    const EngineMemory host(*PartsModel(recipe), *MakeRecipe(recipe));
    Receiver on_host(PartsModel(recipe), kPartRank, {.recipe = recipe}, host.Adopt());
    const DeviceEngine engine(*device_, *PartsModel(recipe), {.model = {.recipe = recipe}});
    Receiver on_device(PartsModel(recipe), kPartRank, {.recipe = recipe}, engine.Adopt());
    for (const std::uint32_t seed : {1U, 2U}) {
      const Weights version = PartsVersion(recipe, seed);
      const Digest expected = on_host.ReloadWeights(EagerSource(version)).served_digest;
      const std::size_t waits = device_->waits();
      const std::size_t brought = device_->bytes_brought();
      on_device.Stage(EagerSource(version));
      EXPECT_LE(device_->waits() - waits, kPartLayers + 8U) << recipe;
      EXPECT_LE(device_->bytes_brought() - brought, on_device.report().staged_bytes / 20) << recipe;
      on_device.Commit();
      EXPECT_EQ(on_device.captured().ServedDigest(), expected) << recipe;
    }
  }
}

}  // namespace
}  // namespace layercast
