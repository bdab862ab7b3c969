// Parts of a fused layer that come as codes with a scale each, by every way through the pipeline.
#include "engine_side/reload/pipeline/part_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine_side/quant/codes.h"
#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/pipeline/pipeline.h"
#include "engine_side/reload/work/host_work.h"
#include "src/base/memory/counting_memory.h"
#include "src/tensor/element.h"
#include "src/tensor/manifest/manifest_entry.h"
#include "tests/support/error_of.h"
#include "tests/support/quantized_mlp.h"
#include "tests/support/test_weights.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Weights;

constexpr std::int64_t kPartRows = 384, kPartCols = 256;  // of gate, and of up
constexpr int kPartRanks = 2;

using Scales = std::map<std::string, float>;  // by part

std::unique_ptr<testing::Tree> CodedMlp(int rank) {
  auto model = testing::Mlp(rank, kPartRanks);
  for (const std::size_t i : {0U, 1U}) {
    testing::Layer(*model, i).SetQuantization(true, QuantizedForm{.scales = QuantizedForm::Scales::kTensor});
    testing::Layer(*model, i).TakeQuantized(true);
  }
  return model;
}

Weights CodedWeights(const Scales& scales) {
  Weights weights;
  constexpr unsigned kNan = 0x7F;  // a code; those from here on are negative
  std::mt19937 random(1);
  for (const std::string part : {"gate", "up", "down"}) {
    const Shape shape = part == "down" ? Shape{kPartCols, kPartRows} : Shape{kPartRows, kPartCols};
    std::vector<std::byte> codes(static_cast<std::size_t>(kPartRows * kPartCols));
    for (std::byte& code : codes) code = static_cast<std::byte>(random() % kNan);
    weights.AddBytes({"mlp." + part + "_proj.weight", DType::kF8E4M3, shape}, std::move(codes));
    weights.Add({"mlp." + part + "_proj.weight_scale", DType::kF32, {1}}, {scales.at(part)});
    if (part != "down") weights.AddRandom({"mlp." + part + "_proj.bias", DType::kBF16, {kPartRows}}, 2);
  }
  return weights;
}

// What a rank serves of gate and up, element by element.
std::vector<std::uint8_t> CodesSlowly(const Weights& weights, const Scales& scales, int rank) {
  constexpr std::int64_t kOwn = kPartRows / kPartRanks;
  const float largest = std::max(scales.at("gate"), scales.at("up"));
  std::vector<std::uint8_t> codes;
  for (const auto& [index, scale] : {std::pair(0, scales.at("gate")), std::pair(3, scales.at("up"))}) {
    for (std::int64_t i = rank * kOwn * kPartCols; i < (rank + 1) * kOwn * kPartCols; ++i) {
      const auto code =
          std::to_integer<std::uint8_t>(weights.bytes(static_cast<std::size_t>(index))[static_cast<std::size_t>(i)]);
      const auto value = static_cast<float>(DecodeElement(DType::kF8E4M3, code));
      codes.push_back(scale == largest ? code : EncodeE4M3(value * scale * (1.0F / largest)));
    }
  }
  return codes;
}

struct PartsWay {
  bool direct = false;
  int seed = -1;  // negative: in order
  std::uint64_t chunk_bytes = 4U << 20;
};

struct ServedParts {
  std::vector<std::uint8_t> codes;
  float scale = 0;
};

ServedParts LoadParts(const Weights& weights, int rank, const PartsWay& way) {
  const std::unique_ptr<testing::Tree> model = CodedMlp(rank);
  HostMemory host;
  WorkerPool pool(2);
  FailPoints failpoints{""};
  const LayerRecipes recipes("fp8_per_tensor", {});
  std::vector<ManifestEntry> entries;
  for (std::size_t i = 0; i < weights.size(); ++i)
    entries.push_back(EntryOf(weights.at(i).name, weights.at(i).tensor, pool));
  const Manifest manifest("parts", 0, std::move(entries));
  const LoadPlan plan = LoadPlan::Build(*model, manifest);

  std::vector<Buffer> memory;
  std::vector<CapturedBuffer> buffers;
  for (const TensorSpec& spec : KernelTensorsOf(plan, recipes)) {
    memory.emplace_back(host, static_cast<std::size_t>(spec.num_bytes()));
    buffers.push_back({spec.name, memory.back().data(), spec.dtype, spec.shape, {}, {}});
  }
  const KernelLayout layout(plan, recipes, CapturedBuffers::Adopt(buffers));
  const auto committer = MakeCommitter(
      CommitPolicy::kStaged,
      {.layout = layout, .kept_memory = host, .layer_memory = host, .pool = pool, .failpoints = failpoints});
  std::vector<Piece> pieces = MakeSchedule(plan, manifest, {.chunk_bytes = way.chunk_bytes}).pieces;
  HostWork work(host, pool);
  ReloadPipeline pipeline({plan, manifest, layout, recipes, committer->Begin(), work, pool, failpoints},
                          way.direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
  EXPECT_EQ(pipeline.IsDirect(0), way.direct);
  if (way.seed >= 0) std::ranges::shuffle(pieces, std::mt19937(static_cast<std::uint32_t>(way.seed)));
  for (const Piece& piece : pieces) {
    const Region region = RegionOf(plan, manifest, piece);
    pipeline.Accept(
        piece, {weights.bytes(region.tensor).data() + region.offset, region.row_bytes, region.rows, region.stride});
  }
  pipeline.Finish();
  committer->Commit();

  ServedParts served;
  for (const CapturedBuffer& buffer : buffers) {
    if (buffer.name == "mlp.gate_up_proj.weight") {
      const auto* codes = reinterpret_cast<const std::uint8_t*>(buffer.address);
      served.codes.assign(codes, codes + NumBytes(buffer.dtype, buffer.shape));
    }
    if (buffer.name == "mlp.gate_up_proj.weight_scale") served.scale = *reinterpret_cast<const float*>(buffer.address);
  }
  return served;
}

TEST(PartScales, AreBroughtToTheLargestByEveryWay) {
  for (const Scales& scales : {Scales{{"gate", 0.25F}, {"up", 0.375F}, {"down", 1.0F}},
                               Scales{{"gate", 0.375F}, {"up", 0.25F}, {"down", 1.0F}},
                               Scales{{"gate", 0.375F}, {"up", 0.375F}, {"down", 1.0F}},
                               Scales{{"gate", 0.0F}, {"up", 0.0F}, {"down", 1.0F}}}) {
    const Weights weights = CodedWeights(scales);
    for (int rank = 0; rank < kPartRanks; ++rank) {
      for (const PartsWay& way :
           {PartsWay{}, PartsWay{.direct = true}, PartsWay{.seed = 1, .chunk_bytes = 3000},
            PartsWay{.direct = true, .seed = 2}, PartsWay{.direct = true, .seed = 3, .chunk_bytes = 3000}}) {
        const ServedParts served = LoadParts(weights, rank, way);
        EXPECT_EQ(served.scale, std::max(scales.at("gate"), scales.at("up")));
        EXPECT_TRUE(served.codes == CodesSlowly(weights, scales, rank))
            << scales.at("gate") << " rank " << rank << " seed " << way.seed;
      }
    }
  }
}

TEST(PartScales, ThatCannotBeAreNamedThoughAnotherPartsHasTheirMagnitude) {
  const Weights weights = CodedWeights({{"gate", 0.25F}, {"up", -0.25F}, {"down", 1.0F}});
  EXPECT_THAT(
      ErrorOf([&] { LoadParts(weights, 0, {}); }),
      HasSubstr("layer mlp.gate_up_proj: 'mlp.up_proj.weight_scale': expected finite scales that are not negative, "
                "got -0.25"));
}

TEST(PartScales, ArePlacedOfEachPartOnce) {
  WorkerPool pool(1);
  Weights weights = CodedWeights({{"gate", 0.25F}, {"up", 0.25F}, {"down", 1.0F}});
  const std::unique_ptr<testing::Tree> model = CodedMlp(0);  // names of shards are its own
  const LoadPlan plan = LoadPlan::Build(*model, weights.ToManifest());
  std::vector<std::string> shards;
  for (const Placement& placement : plan.placements()) {
    if (placement.shared) shards.emplace_back(placement.shard_id);
  }
  EXPECT_THAT(shards, ::testing::ElementsAre("0", "1"));
  EXPECT_THAT(plan.aliases(), ::testing::IsEmpty());
}

TEST(PartScales, OfOnePartUnderTwoNamesAreRepeated) {
  const auto model = testing::Mlp(0, 1);
  testing::Layer(*model, 0).SetQuantization(true, QuantizedForm::Nvfp4());
  testing::Layer(*model, 0).TakeQuantized(true);
  for (const std::string part : {"gate_proj", "up_proj"}) {
    Weights weights;
    for (const std::string& name : {std::string("gate_proj.weight_scale_2"), std::string("up_proj.weight_scale_2"),
                                    part + ".weight_global_scale"}) {
      weights.Add({"mlp." + name, DType::kF32, {1}}, {0.25F});
    }
    EXPECT_THAT(LoadPlan::Check(*model, weights.ToManifest()).problems.repeated,
                ::testing::ElementsAre("'mlp." + part + ".weight_scale_2' and 'mlp." + part +
                                       ".weight_global_scale' both fill the same elements of "
                                       "'mlp.gate_up_proj.weight_scale_2'"));
  }
}

}  // namespace
}  // namespace layercast
