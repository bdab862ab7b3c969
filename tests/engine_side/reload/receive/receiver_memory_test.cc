// How much memory a reload takes, counted where it is asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using ::testing::IsEmpty;
using testing::kStagedRecord;
using testing::LazySource;
using testing::ReceiverRig;
using testing::TensorsOf;
using testing::Weights;
using testing::WriteCheckpoint;

// In full precision: qkv_proj and gate_up_proj are [512, 128], qkv_proj has a bias too.
constexpr std::size_t kLargestLayer = 2U * 512 * 129;

TEST(ReceiverMemory, AStreamInOrderHoldsOneLayerInFullPrecision) {
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    ReceiverRig rig({.recipe = recipe, .layers = 3}, /*direct=*/false);
    const Weights weights = rig.Version(1);
    const ReloadReport report = rig.receiver->ReloadWeights(LazySource(weights));
    EXPECT_EQ(rig.layer_memory.peak_bytes(), kLargestLayer);
    EXPECT_EQ(report.peak_buffered_bytes, kLargestLayer);
    EXPECT_EQ(rig.layer_memory.current_bytes(), 0U);
    EXPECT_THAT(report.out_of_order, IsEmpty());
  }
}

// What a receiver does where it is given no memory: freed layers are used again, and still no more than one is held.
TEST(ReceiverMemory, MemoryThatIsKeptForTheNextLayerHoldsNoMoreThanOneLayer) {
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    ReceiverRig rig({.recipe = recipe, .layers = 3}, /*direct=*/false, /*caching=*/true);
    const Weights weights = rig.Version(1);
    rig.receiver->ReloadWeights(LazySource(weights));
    EXPECT_EQ(rig.layer_memory.peak_bytes(), kLargestLayer);
    EXPECT_EQ(rig.layer_memory.allocations(), 2U) << "the embedding, then qkv_proj, which is larger";
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
    rig.layer_cache.Release();
    EXPECT_EQ(rig.layer_memory.current_bytes(), 0U);
  }
}

// From files a tensor is read where it lies: the most beside the layer is the tensor itself, and that is mapped.
TEST(ReceiverMemory, AColdLoadFromFilesHoldsNoMoreThanALayer) {
  for (const bool direct : {true, false}) {
    ReceiverRig rig({.recipe = "fp8_per_block", .layers = 3}, direct);
    const TempFolder folder;
    WriteCheckpoint(folder, rig.Version(1));
    rig.receiver->ReloadWeights(FromPath(folder.path()));
    EXPECT_LE(rig.layer_memory.peak_bytes(), direct ? 0 : kLargestLayer);
    EXPECT_EQ(rig.layer_memory.current_bytes(), 0U);
    EXPECT_EQ(rig.staging_memory.allocations(), 2U) << "the copy, and the record of it";
  }
}

// A GPT-OSS layer: 5 experts in MXFP4, [5, 512, 128] and [5, 128, 256] once they are unpacked, and biases.
TEST(ReceiverMemory, ExpertsInBlocksAreUnpackedOneByOne) {
  constexpr std::size_t kOneExpert = 2U * 512 * 128;
  constexpr std::size_t kLayer = 2U * 5 * (512 * 129 + 128 * 257);
  ReceiverRig rig({.requantize = true, .experts = testing::ExpertForm::kInterleaved}, /*direct=*/false);
  const Weights weights = rig.Version(1);
  const std::vector<std::byte> blocks(std::size_t{5} * 512 * 64, std::byte{0x53});
  const std::vector<std::byte> scales(std::size_t{5} * 512 * 4, std::byte{126});
  std::vector<NamedTensor> tensors = TensorsOf(weights);
  std::erase_if(tensors, [](const NamedTensor& tensor) { return tensor.name.ends_with("_proj"); });
  for (const auto& [name, rows, cols] : {std::tuple("gate_up_proj", 512, 4), std::tuple("down_proj", 128, 8)}) {
    const std::string path = std::string("mlp.experts.") + name;
    tensors.push_back({path + "_blocks", {DType::kU8, {5, rows, cols, 16}, blocks.data(), {}}, nullptr});
    tensors.push_back({path + "_scales", {DType::kU8, {5, rows, cols}, scales.data(), {}}, nullptr});
  }
  const TempFolder folder;
  WriteSafetensors(folder / "model.safetensors", tensors);
  const ReloadReport report = rig.receiver->ReloadWeights(FromPath(folder.path()));
  EXPECT_EQ(report.peak_buffered_bytes, kLayer);
  EXPECT_EQ(rig.layer_memory.peak_bytes(), kLayer + kOneExpert);
  EXPECT_EQ(rig.layer_memory.current_bytes(), 0U);
  // The codes 3 and 5 are 1.5 and 3, the scale is 0.5.
  EXPECT_EQ(rig.engine.Served().at("mlp.experts.w2_weight")[1], std::byte{0x3F});
  EXPECT_EQ(rig.engine.Served().at("mlp.experts.w2_weight")[2], std::byte{0xC0});
}

TEST(ReceiverMemory, AStreamInDisorderCostsWhatIsOpenAndNoMore) {
  ReceiverRig rig({.recipe = "fp8_per_channel", .layers = 3});
  const Weights weights = rig.Version(1);
  std::vector<NamedTensor> tensors = TensorsOf(weights);
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  const ReloadReport report =
      rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(tensors), testing::SpecsOf(weights)));
  EXPECT_GT(report.peak_buffered_bytes, kLargestLayer);
  EXPECT_EQ(report.peak_buffered_bytes, rig.layer_memory.peak_bytes());
  EXPECT_EQ(rig.layer_memory.current_bytes(), 0U);
}

TEST(ReceiverMemory, StagingIsOneQuantizedCopyKeptForGood) {
  ReceiverRig rig;
  std::size_t quantized = 0;
  for (const auto& [name, bytes] : rig.engine.Served()) quantized += bytes.size();
  const std::size_t tensors = rig.engine.Served().size();
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  EXPECT_GE(rig.staging_memory.current_bytes(), quantized);
  EXPECT_LT(rig.staging_memory.current_bytes(), quantized + 64 * tensors + kStagedRecord);
  EXPECT_EQ(rig.staging_memory.allocations(), 2U) << "the copy, and the record of it";
}

TEST(ReceiverMemory, AHundredReloadsOfOneVersionChangeNothing) {
  ReceiverRig rig;
  const Weights weights = rig.Version(1);
  const ReloadReport first = rig.receiver->ReloadWeights(EagerSource(weights));
  const auto served = rig.engine.Served();
  const std::size_t of_first = rig.layer_memory.allocations();
  for (int i = 0; i < 100; ++i) {
    const ReloadReport report = rig.receiver->ReloadWeights(EagerSource(weights));
    ASSERT_EQ(report.served_digest, first.served_digest);
    ASSERT_EQ(report.buffers_digest, first.buffers_digest);
    ASSERT_EQ(report.version, first.version);
  }
  EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
  EXPECT_EQ(rig.staging_memory.allocations(), 2U) << "the copy, and the record of it";
  EXPECT_EQ(rig.layer_memory.allocations(), 101 * of_first) << "each reload asks for its layers' buffers alone";
  EXPECT_EQ(rig.layer_memory.peak_bytes(), kLargestLayer);
}

}  // namespace
}  // namespace layercast
