// Reloads of an engine on a device, byte for byte those of the slow reference. Linked with a device that is played, and
// with a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/device/device_test.h"
#include "tests/support/reload/device_rig.h"

namespace layercast {
namespace {

using testing::DeviceRig;
using testing::DeviceRigOptions;
using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using testing::ExpertForm;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RigOptions;
using testing::TensorsOf;
using testing::Weights;

constexpr const char* kRecipes[] = {"none",  "fp8_per_tensor", "fp8_per_channel", "fp8_per_block",
                                    "mxfp8", "mxfp4",          "nvfp4",           "int8_per_channel"};

class OnDevice : public testing::DeviceTest {
 protected:
  // Two versions, so that a byte that the second one leaves shows. The first comes in an order of its own, and so by
  // five stages, and the second in the plan's, directly where it can.
  void ExpectReloads(const DeviceRigOptions& options) {
    DeviceRig rig(*device_, options);
    const Weights first = rig.Version(1);
    rig.receiver->ReloadWeights(EagerSource(first));
    EXPECT_THAT(Differences(rig.Served(), rig.Expected(first)), IsEmpty()) << "by five stages";
    const Weights second = rig.Version(2);
    const TempFolder folder;
    testing::WriteCheckpoint(folder, second);
    rig.receiver->ReloadWeights(FromPath(folder.path().string()));
    EXPECT_THAT(Differences(rig.Served(), rig.Expected(second)), IsEmpty()) << "directly";
  }
};

class OnDeviceByRecipe : public OnDevice,
                         public ::testing::WithParamInterface<std::tuple<const char*, std::pair<int, int>>> {
 protected:
  RigOptions Model() const {
    const auto [rank, size] = std::get<1>(GetParam());
    return {.recipe = std::get<0>(GetParam()), .parallel = {rank, size}};
  }
};

TEST_P(OnDeviceByRecipe, ServesTheBytesOfTheSlowReference) {
  ExpectReloads({.model = Model()});
  ExpectReloads({.model = Model(), .chunk_bytes = 5000});  // less than many rows, and more blocks than the ring has
}

TEST_P(OnDeviceByRecipe, ServesThemWhereSomeLayersStayInHostMemory) {
  ExpectReloads({.model = Model(), .on_host = [](const std::string& name) {
                   return name.find("mlp") != std::string::npos || name.find("norm") != std::string::npos;
                 }});
}

TEST_P(OnDeviceByRecipe, ServesThemInForeignStrides) { ExpectReloads({.model = Model(), .strided = true}); }

TEST_P(OnDeviceByRecipe, ServesThemPaddedTransposedAndColumnMajor) {
  const WeightLayout layouts[] = {{.row_alignment = 96, .column_alignment = 96},
                                  {.transposed = true, .column_major = true},
                                  {96, 96, true, false},
                                  {96, 96, false, true}};
  for (const WeightLayout& layout : layouts) {
    DeviceRig rig(*device_,
                  {.model = Model(),
                   .on_host = [](const std::string& name) { return name.find("down_proj") != std::string::npos; },
                   .layout = layout});
    for (const std::uint32_t seed : {1U, 2U}) {
      const Weights weights = rig.Version(seed);
      rig.receiver->ReloadWeights(EagerSource(weights));
      EXPECT_THAT(Differences(rig.Served(), rig.Expected(weights)), IsEmpty());
      EXPECT_THAT(Differences(rig.engine.Memory(), rig.engine.ExpectedMemory(rig.Expected(weights))), IsEmpty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, OnDeviceByRecipe,
    ::testing::Combine(::testing::ValuesIn(testing::kUnderThreadSanitizer
                                               ? std::vector{"fp8_per_channel"}
                                               : std::vector(std::begin(kRecipes), std::end(kRecipes))),
                       ::testing::ValuesIn(testing::kUnderSanitizer
                                               ? std::vector{std::pair(1, 2)}
                                               : std::vector{std::pair(0, 1), std::pair(1, 2), std::pair(3, 4)})));

TEST_F(OnDevice, ServesExpertsInEveryForm) {
  for (const char* recipe : {"none", "fp8_per_channel", "nvfp4"}) {
    for (const ExpertForm form : {ExpertForm::kPerExpert, ExpertForm::kFused, ExpertForm::kStacked,
                                  ExpertForm::kTransposed, ExpertForm::kInterleaved}) {
      SCOPED_TRACE(std::string(recipe) + ", form " + std::to_string(static_cast<int>(form)));
      ExpectReloads({.model = {.recipe = recipe, .parallel = {1, 2}, .experts = form}});
    }
  }
}

// The experts of GPT-OSS in MXFP4: codes and exponents of their own, the rest as the rig has it.
struct Mxfp4Experts {
  Mxfp4Experts(Weights rest, std::uint32_t seed) : weights(std::move(rest)) {
    std::mt19937 random(seed);
    for (const auto& [name, rows, cols] : {std::tuple("gate_up_proj", 512, 4), std::tuple("down_proj", 128, 8)}) {
      std::vector<std::byte>& codes = bytes.emplace_back(static_cast<std::size_t>(5 * rows * cols * 16));
      for (std::byte& code : codes) code = static_cast<std::byte>(random());
      std::vector<std::byte>& exponents = bytes.emplace_back(static_cast<std::size_t>(5 * rows * cols));
      for (std::byte& exponent : exponents) exponent = static_cast<std::byte>(100 + random() % 50);
      const std::string path = std::string("mlp.experts.") + name;
      packed.push_back({path + "_blocks", {DType::kU8, {5, rows, cols, 16}, codes.data(), {}}, nullptr});
      packed.push_back({path + "_scales", {DType::kU8, {5, rows, cols}, exponents.data(), {}}, nullptr});
    }
  }
  ReloadSource Source() const {
    std::vector<NamedTensor> tensors = TensorsOf(weights);
    std::erase_if(tensors, [](const NamedTensor& tensor) { return tensor.name.ends_with("_proj"); });
    tensors.insert(tensors.end(), packed.begin(), packed.end());
    std::vector<TensorSpec> specs;
    for (const NamedTensor& tensor : tensors) specs.push_back({tensor.name, tensor.tensor.dtype, tensor.tensor.shape});
    return FromIterator(MakeWeightsIterator(std::move(tensors)), std::move(specs));
  }

  const Weights weights;
  std::deque<std::vector<std::byte>> bytes;
  std::vector<NamedTensor> packed;
};

TEST_F(OnDevice, TakesCodesAndExponentsAsTheyComeAndNamesANanAmongThem) {
  const RigOptions model{.recipe = "mxfp4", .experts = ExpertForm::kInterleaved};
  DeviceRig rig(*device_, {.model = model});
  testing::ReceiverRig on_host(model);
  Mxfp4Experts experts(rig.Version(1), 1);
  rig.receiver->ReloadWeights(experts.Source());
  on_host.receiver->ReloadWeights(experts.Source());
  EXPECT_THAT(Differences(rig.Served(), on_host.engine.Served()), IsEmpty());
  experts.bytes[3][7] = std::byte{0xFF};
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(experts.Source()); }),
              HasSubstr("'mlp.experts.w2_weight_scale' expected powers of two, got NaN at element 7"));
  EXPECT_THAT(Differences(rig.Served(), on_host.engine.Served()), IsEmpty());
}

TEST_F(OnDevice, CastsWhatTheTrainerHoldsInAnotherDtype) {
  for (const DType source : {DType::kF32, DType::kF16, DType::kF64}) {
    ExpectReloads({.model = {.recipe = "fp8_per_channel", .parallel = {1, 2}, .source = source}});
    ExpectReloads({.model = {.dtype = DType::kF16, .source = source}});
  }
}

TEST_F(OnDevice, HoldsScalesOfActivationsAndCaches) {
  for (const DType source : {DType::kBF16, DType::kF32}) {
    ExpectReloads({.model = {.recipe = "fp8_per_tensor",
                             .parallel = {1, 2},
                             .source = source,
                             .layers = 2,
                             .scales = {.inputs = true, .kv_cache = true}}});
  }
}

TEST_F(OnDevice, TakesTensorsInAnyOrder) {
  DeviceRig rig(*device_, {.model = {.recipe = "fp8_per_block", .layers = 3}});
  const Weights weights = rig.Version(1);
  std::vector<NamedTensor> tensors = TensorsOf(weights);
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(tensors), testing::SpecsOf(weights)));
  EXPECT_THAT(Differences(rig.Served(), rig.Expected(weights)), IsEmpty());
}

TEST_F(OnDevice, RefusesBuffersOnTwoDevices) {
  testing::DeviceEngine engine(*device_, *testing::RigModel({}), {});
  ++engine.table()[1].device.index;
  EXPECT_THAT(ErrorOf([&] { engine.Adopt(); }), HasSubstr("expected one device for a rank"));
}

}  // namespace
}  // namespace layercast
