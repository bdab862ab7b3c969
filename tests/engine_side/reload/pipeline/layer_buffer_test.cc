#include "engine_side/reload/pipeline/layer_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Rig;
using ::testing::SizeIs;

constexpr const char* kPath = "model.layers.0.";

class LayerBufferTest : public ::testing::Test {
 protected:
  // As the pipeline does: count, open where that is due, release when covered.
  void Arrive(const Piece& piece) {
    const std::uint32_t layer = rig_.plan.parameters()[rig_.plan.placements()[piece.placement].parameter].layer;
    if (!buffer_.CountBuffered(piece)) return;
    if (buffer_.MemoryOf(layer) == nullptr) buffer_.Open(layer);
    if (buffer_.Covered(layer)) buffer_.Release(layer);
  }
  void Arrive(const std::string& tensor) { Arrive(rig_.Whole(kPath + tensor)); }
  void ArriveAll(const std::vector<std::string>& tensors) {
    for (const std::string& tensor : tensors) Arrive(tensor);
  }

  Rig rig_{{.layers = 2}};
  LayerBuffer buffer_{rig_.plan, rig_.manifest, rig_.work};
};

TEST_F(LayerBufferTest, ALayerIsCoveredWhenEachOfItsBytesCameOnce) {
  const std::uint32_t layer = rig_.LayerOf("model.layers.0.mlp.gate_up_proj");
  const Piece gate = rig_.Whole("model.layers.0.mlp.gate_proj.weight");
  const Piece up = rig_.Whole("model.layers.0.mlp.up_proj.weight");
  EXPECT_TRUE(buffer_.CountBuffered({gate.placement, 256, gate.end}));
  EXPECT_FALSE(buffer_.CountBuffered({gate.placement, 0, 0})) << "an empty piece: there is nothing to do";
  EXPECT_TRUE(buffer_.CountBuffered(up));
  EXPECT_FALSE(buffer_.Covered(layer));
  EXPECT_TRUE(buffer_.CountBuffered({gate.placement, 0, 256}));
  EXPECT_TRUE(buffer_.Covered(layer));
}

// What counting elements takes for complete: as many as the layer holds, but one shard twice and another never.
TEST_F(LayerBufferTest, ARepeatedPieceIsRefusedByTheTensorsName) {
  const Piece k = rig_.Whole("model.layers.0.self_attn.k_proj.weight");
  buffer_.CountBuffered(k);
  for (const Piece& again : {k, Piece{k.placement, 2, 4}, Piece{k.placement, k.end - 2, k.end}}) {
    EXPECT_THAT(ErrorOf([&] { buffer_.CountBuffered(again); }),
                HasSubstr("layer model.layers.0.self_attn.qkv_proj: 'model.layers.0.self_attn.k_proj.weight' arrived "
                          "twice: expected each byte exactly once"));
  }
  EXPECT_FALSE(buffer_.Covered(rig_.LayerOf("model.layers.0.self_attn.qkv_proj")));
}

TEST_F(LayerBufferTest, HoldsMemoryOfOpenLayersAlone) {
  const std::uint32_t layer = rig_.LayerOf("model.layers.0.mlp.gate_up_proj");
  EXPECT_EQ(buffer_.MemoryOf(layer), nullptr);
  Arrive("mlp.gate_proj.weight");
  ASSERT_NE(buffer_.MemoryOf(layer), nullptr);
  EXPECT_EQ(rig_.memory.current_bytes(), 2U * 512 * 128);
  Arrive("mlp.up_proj.weight");
  EXPECT_EQ(buffer_.MemoryOf(layer), nullptr);
  EXPECT_EQ(rig_.memory.current_bytes(), 0U);
  EXPECT_EQ(buffer_.peak_bytes(), 2U * 512 * 128);
}

// q: 65536 bytes; gate, of which two rows have come: 65536 too, because all of it is going to be buffered.
TEST_F(LayerBufferTest, WarnsWordForWordWhenASecondLayerOpens) {
  Arrive("self_attn.q_proj.weight");
  EXPECT_THAT(buffer_.episodes(), IsEmpty());
  Arrive(Piece{rig_.PlacementOf("model.layers.0.mlp.gate_proj.weight"), 0, 512});
  ASSERT_THAT(buffer_.episodes(), SizeIs(1));
  const OutOfOrderEpisode& episode = buffer_.episodes()[0];
  EXPECT_EQ(
      episode.warning,
      "Allocating 0.1 MB of device memory to buffers to load [\"QKVParallelLinear\", "
      "\"MergedColumnParallelLinear\"] layers. This extra memory usage can be avoided by ordering weights by their "
      "parent layer when reloading.");
  EXPECT_THAT(episode.layers, ElementsAre("model.layers.0.self_attn.qkv_proj", "model.layers.0.mlp.gate_up_proj"));
  EXPECT_THAT(episode.awaited,
              ElementsAre("model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                          "model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.k_proj.bias",
                          "model.layers.0.self_attn.v_proj.bias", "model.layers.0.mlp.gate_proj.weight",
                          "model.layers.0.mlp.up_proj.weight"));
}

TEST_F(LayerBufferTest, NamesClassesInTheOrderInWhichTheyWereOpened) {
  Arrive("mlp.gate_proj.weight");
  Arrive("self_attn.q_proj.bias");
  ASSERT_THAT(buffer_.episodes(), SizeIs(1));
  EXPECT_THAT(buffer_.episodes()[0].warning,
              HasSubstr("[\"MergedColumnParallelLinear\", \"QKVParallelLinear\"] layers"));
}

TEST_F(LayerBufferTest, TellsAnEpisodeOnceAndTheNextOneAgain) {
  Arrive("self_attn.q_proj.weight");
  ArriveAll({"mlp.gate_proj.weight", "self_attn.k_proj.weight", "post_attention_layernorm.weight"});
  Arrive(rig_.Whole("model.layers.1.mlp.gate_proj.weight"));
  EXPECT_THAT(buffer_.episodes(), SizeIs(1)) << "a third layer belongs to the same episode";
  Arrive("mlp.up_proj.weight");
  Arrive(rig_.Whole("model.layers.1.mlp.up_proj.weight"));  // qkv_proj alone is open: the episode is over
  EXPECT_THAT(buffer_.episodes(), SizeIs(1));
  Arrive(rig_.Whole("model.norm.weight"));
  ASSERT_THAT(buffer_.episodes(), SizeIs(2));
  EXPECT_THAT(buffer_.episodes()[1].layers, ElementsAre("model.layers.0.self_attn.qkv_proj", "model.norm"));
}

TEST_F(LayerBufferTest, NeverWarnsOfAStreamThatIsInOrder) {
  for (std::uint64_t chunk : {700U, 20'000U, 4'000'000U}) {
    LayerBuffer buffer(rig_.plan, rig_.manifest, rig_.work);
    for (const Piece& piece : rig_.Pieces(chunk)) {
      const std::uint32_t layer = rig_.plan.parameters()[rig_.plan.placements()[piece.placement].parameter].layer;
      buffer.CountBuffered(piece);
      if (buffer.MemoryOf(layer) == nullptr) buffer.Open(layer);
      if (buffer.Covered(layer)) buffer.Release(layer);
    }
    EXPECT_THAT(buffer.episodes(), IsEmpty());
    EXPECT_THAT(buffer.AwaitedTensors(), IsEmpty());
  }
}

// 65 of 128 rows come: one that counts elements waits for the padding forever, and warns at the next layer.
TEST_F(LayerBufferTest, APaddedEmbeddingIsCompleteAndTriggersNothing) {
  Arrive(rig_.Whole("model.embed_tokens.weight"));
  EXPECT_TRUE(buffer_.Covered(rig_.LayerOf("model.embed_tokens")));
  ArriveAll({"input_layernorm.weight", "self_attn.q_proj.weight"});
  EXPECT_THAT(buffer_.episodes(), IsEmpty());
}

TEST_F(LayerBufferTest, ALimitRefusesALayerAndNamesThoseThatHoldTheMemory) {
  const std::uint32_t qkv = rig_.LayerOf("model.layers.0.self_attn.qkv_proj");
  const std::uint32_t mlp = rig_.LayerOf("model.layers.0.mlp.gate_up_proj");
  const std::uint64_t qkv_bytes = LayerBytes(rig_.plan, rig_.plan.layers()[qkv]);
  const std::uint64_t both = qkv_bytes + LayerBytes(rig_.plan, rig_.plan.layers()[mlp]);
  LayerBuffer tight(rig_.plan, rig_.manifest, rig_.work, both - 1);
  tight.CountBuffered(rig_.Whole("model.layers.0.self_attn.k_proj.weight"));
  tight.Open(qkv);
  tight.CountBuffered(rig_.Whole("model.layers.0.mlp.gate_proj.weight"));
  EXPECT_THAT(
      ErrorOf([&] { tight.Open(mlp); }),
      AllOf(HasSubstr("layer model.layers.0.mlp.gate_up_proj needs "),
            HasSubstr("of " + std::to_string(both - 1) + " that the buffer limit allows"),
            HasSubstr("model.layers.0.self_attn.qkv_proj: " + std::to_string(qkv_bytes) + " bytes"),
            HasSubstr("model.layers.0.self_attn.q_proj.weight"), HasSubstr("model.layers.0.self_attn.v_proj.weight")));
  EXPECT_EQ(tight.peak_bytes(), qkv_bytes);
  LayerBuffer enough(rig_.plan, rig_.manifest, rig_.work, both);
  enough.Open(qkv);
  enough.Open(mlp);
  EXPECT_EQ(enough.peak_bytes(), both);
}

TEST_F(LayerBufferTest, ALayerThatDoesNotFitAloneIsNoMatterOfOrder) {
  const std::uint32_t qkv = rig_.LayerOf("model.layers.0.self_attn.qkv_proj");
  LayerBuffer tight(rig_.plan, rig_.manifest, rig_.work, 1);
  EXPECT_THAT(ErrorOf([&] { tight.Open(qkv); }),
              HasSubstr("of 1 that the buffer limit allows: no order of weights helps, allow more"));
}

TEST_F(LayerBufferTest, ALayerOfPaddingAloneExpectsNothing) {
  Rig last({.parallel = {3, 4}});
  const LayerBuffer buffer(last.plan, last.manifest, last.work);
  EXPECT_FALSE(buffer.ExpectsBytes(last.LayerOf("model.embed_tokens")));
  EXPECT_TRUE(buffer.ExpectsBytes(last.LayerOf("model.norm")));
  EXPECT_TRUE(buffer.Covered(last.LayerOf("model.embed_tokens")));
}

}  // namespace
}  // namespace layercast
