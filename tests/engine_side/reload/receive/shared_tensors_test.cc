// Checkpoint tensors that several layers have parts of, among them a stack over all decoder layers, come to the same
// bytes as a tensor of each part: by load_weights, by the pipeline, from files and as a stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/reload/other_layouts.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::LazySource;
using testing::LoadByPieces;
using testing::ReceiverRig;
using testing::Rig;
using testing::RigOptions;
using testing::ServedBytes;
using ::testing::SizeIs;
using testing::Weights;

constexpr int kLayers = 2;

std::string Layer(int layer, const std::string& name) {
  return "model.layers." + std::to_string(layer) + "." + name + ".weight";
}

using Case = std::tuple<const char*, ParallelConfig, DType>;

class SharedTensorsOfEveryRecipe : public ::testing::TestWithParam<Case> {};

TEST_P(SharedTensorsOfEveryRecipe, ComeToTheBytesOfTheUsualCheckpoint) {
  const auto& [recipe, parallel, source] = GetParam();
  const RigOptions usual{.recipe = recipe, .parallel = parallel, .source = source, .layers = kLayers};
  const Weights weights = testing::RigWeights(usual);
  const ServedBytes expected = ServedSlowly(usual, weights);
  RigOptions options = usual;
  options.transforms = testing::SharedTransforms(kLayers);
  const Weights shared = testing::Shared(weights);
  EXPECT_THAT(Differences(ServedSlowly(options, shared), expected), IsEmpty()) << "load_weights";
  for (const std::uint64_t chunk_bytes : {4U << 20, 700U}) {
    EXPECT_THAT(Differences(LoadByPieces(options, shared, false, chunk_bytes), expected), IsEmpty()) << chunk_bytes;
    EXPECT_THAT(Differences(LoadByPieces(options, shared, true, chunk_bytes), expected), IsEmpty()) << chunk_bytes;
  }
}

const ParallelConfig kTwoStages[] = {{.pp_rank = 0, .pp_size = 2},
                                     {.tp_rank = 1, .tp_size = 2, .pp_rank = 1, .pp_size = 2}};

INSTANTIATE_TEST_SUITE_P(
    Ranks, SharedTensorsOfEveryRecipe,
    ::testing::Combine(::testing::Values("none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8",
                                         "nvfp4"),
                       ::testing::Values(ParallelConfig{}, ParallelConfig{.tp_rank = 1, .tp_size = 2},
                                         ParallelConfig{.tp_rank = 3, .tp_size = 4}, kTwoStages[0], kTwoStages[1]),
                       ::testing::ValuesIn(testing::ModelDTypes())));

RigOptions Declared(const char* recipe) {
  return {.recipe = recipe, .layers = kLayers, .transforms = testing::SharedTransforms(kLayers)};
}

// The blocks and the stack of queries make one group of four layers; stacks of what is a layer's only tensor one each.
TEST(SharedTensors, PutTheirLayersInOneGroup) {
  const RigOptions options = Declared("none");
  const Weights shared = testing::Shared(testing::RigWeights({.layers = kLayers}));
  const Rig rig(options, {}, &shared);
  const auto group_of = [&](const std::string& path) { return rig.plan.layers()[rig.LayerOf(path)].group; };
  const std::uint32_t first = rig.LayerOf("model.layers.0.self_attn.qkv_proj");
  for (const char* layer : {"0", "1"}) {
    const std::string path = "model.layers." + std::string(layer);
    EXPECT_EQ(group_of(path + ".self_attn.qkv_proj"), first);
    EXPECT_EQ(group_of(path + ".mlp.gate_up_proj"), first);
    EXPECT_EQ(group_of(path + ".mlp.down_proj"), rig.LayerOf("model.layers.0.mlp.down_proj"));
    EXPECT_EQ(group_of(path + ".post_attention_layernorm"), rig.LayerOf(path + ".post_attention_layernorm"));
  }
}

// A stage that holds none of a tensor's parts does not ask for it; one that holds some of them does.
TEST(SharedTensors, AreElsewhereWhereNoneOfTheirPartsIsHeld) {
  RigOptions options = Declared("none");
  const Weights shared = testing::Shared(testing::RigWeights({.layers = kLayers}));
  options.parallel = kTwoStages[0];
  const Rig rig(options, {}, &shared);
  std::vector<std::string> elsewhere;
  for (const ElsewhereTensor& tensor : rig.plan.elsewhere()) {
    const std::string& name = rig.manifest.entry(tensor.tensor).spec.name;
    if (!name.starts_with("model.") && !name.starts_with("lm_head.")) elsewhere.push_back(name);
  }
  EXPECT_THAT(elsewhere, ElementsAre("block.1"));
  EXPECT_EQ(rig.plan.placed_bytes(), Rig({.parallel = kTwoStages[0], .layers = kLayers}).plan.placed_bytes());
}

std::vector<NamedTensor> InOrder(const Weights& weights, const std::vector<std::string>& first) {
  std::vector<NamedTensor> tensors;
  for (const std::string& name : first) tensors.push_back(weights.at(testing::IndexOf(weights, name)));
  for (const NamedTensor& tensor : testing::TensorsOf(weights)) {
    if (std::ranges::count(first, tensor.name) == 0) tensors.push_back(tensor);
  }
  return tensors;
}

std::vector<OutOfOrderEpisode> EpisodesOf(const std::vector<std::string>& first) {
  ReceiverRig rig(Declared("fp8_per_channel"));
  const Weights usual = testing::RigWeights({.layers = kLayers});
  const Weights shared = testing::Shared(usual);
  const ReloadReport report =
      rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(InOrder(shared, first)), testing::SpecsOf(shared)));
  EXPECT_THAT(Differences(rig.engine.Served(), ServedSlowly({.recipe = "fp8_per_channel", .layers = kLayers}, usual)),
              IsEmpty());
  return report.out_of_order;
}

// No order of whole tensors could fill the layers of a group one after the other.
TEST(SharedTensors, AreNoDisorderAsLongAsTheirGroupComesTogether) {
  const std::vector<std::string> biases = {
      "model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.k_proj.bias",
      "model.layers.0.self_attn.v_proj.bias", "model.layers.1.self_attn.q_proj.bias",
      "model.layers.1.self_attn.k_proj.bias", "model.layers.1.self_attn.v_proj.bias"};
  std::vector<std::string> group = {"stack.q", "block.1", "block.0", Layer(1, "mlp.gate_proj"),
                                    Layer(0, "mlp.gate_proj")};
  group.insert(group.end(), biases.begin(), biases.end());
  EXPECT_THAT(EpisodesOf(group), IsEmpty());
  group.insert(group.begin() + 2, Layer(0, "post_attention_layernorm"));
  const std::vector<OutOfOrderEpisode> episodes = EpisodesOf(group);
  ASSERT_THAT(episodes, SizeIs(1));
  EXPECT_THAT(episodes[0].layers,
              ElementsAre("model.layers.0.self_attn.qkv_proj", "model.layers.1.self_attn.qkv_proj",
                          "model.layers.1.mlp.gate_up_proj", "model.layers.0.post_attention_layernorm"));
}

TEST(SharedTensors, AreReadFromFilesGroupByGroup) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    for (const bool direct : {true, false}) {
      ReceiverRig rig(Declared("fp8_per_channel"), direct, false, policy);
      const Weights usual = testing::RigWeights({.layers = kLayers});
      const TempFolder folder;
      testing::WriteCheckpoint(folder, testing::Shared(usual));
      const ReloadReport report = rig.receiver->ReloadWeights(FromPath(folder.path()));
      EXPECT_THAT(report.out_of_order, IsEmpty());
      EXPECT_THAT(
          Differences(rig.engine.Served(), ServedSlowly({.recipe = "fp8_per_channel", .layers = kLayers}, usual)),
          IsEmpty());
    }
  }
}

}  // namespace
}  // namespace layercast
