// `load_weights` and the load plan are two readers of one answer, Place: they agree byte for byte, whatever the order
// of the stream and however it is split, and a layer that answers wrongly is wrong in both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "layercast/error.h"
#include "src/tensor/strided_copy.h"
#include "tests/engine_side/plan/planned_model.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::TinyModel;
using testing::TinyOptions;
using testing::TinyWeights;
using testing::Tree;
using testing::Weights;

using BytesByName = std::map<std::string, std::vector<std::byte>>;

void Collect(const Module& module, const std::string& path, BytesByName& out) {
  for (const Parameter& parameter : module.parameters()) {
    ASSERT_FALSE(parameter.on_meta()) << path << parameter.spec.name;
    const auto bytes = parameter.storage.span();
    out[path + parameter.spec.name].assign(bytes.begin(), bytes.end());
  }
  for (const auto& [name, child] : module.children()) Collect(*child, path + name + ".", out);
}

BytesByName Stored(const Module& model) {
  BytesByName out;
  Collect(model, "", out);
  return out;
}

BytesByName Loaded(Module& model, const Weights& weights) {
  EXPECT_EQ(model.load_weights(*weights.Stream()).size(), weights.size());
  return Stored(model);
}

// Carries a plan out the slow way.
BytesByName Planned(const Module& model, const Weights& weights) {
  const LoadPlan plan = LoadPlan::Build(model, weights.ToManifest());
  BytesByName out;
  for (const PlannedParameter& parameter : plan.parameters()) {
    std::vector<std::byte>& bytes = out[parameter.spec.name];
    bytes.assign(static_cast<std::size_t>(parameter.spec.num_bytes()), std::byte{0xA5});
    for (const Box& box : parameter.padding) ZeroBox(parameter.spec, box, bytes.data());
  }
  for (const Placement& placement : plan.placements()) {
    const TensorSpec& spec = plan.parameters()[placement.parameter].spec;
    CopyBox(weights.at(placement.tensor).tensor, placement.source, spec, placement.destination,
            out.at(spec.name).data());
  }
  return out;
}

TEST(LoadWeights, AgreesWithThePlanByteForByte) {
  for (const int tp : {1, 2, 4}) {
    for (int rank = 0; rank < tp; ++rank) {
      for (const bool tied : {false, true}) {
        const TinyOptions options{.tp_rank = rank, .tp_size = tp, .tied = tied, .layers = 2};
        const Weights weights = TinyWeights(options);
        const auto model = TinyModel(options);
        EXPECT_EQ(Planned(*model, weights), Loaded(*model, weights));
      }
    }
  }
}

TEST(LoadWeights, CastsAsThePlanDoes) {
  const Weights weights = TinyWeights({.dtype = DType::kF32});
  const auto model = TinyModel({.dtype = DType::kBF16});
  EXPECT_EQ(Planned(*model, weights), Loaded(*model, weights));
}

// A qkv_proj that takes keys for values.
class Confused final : public Module {
 public:
  explicit Confused(const LayerContext& context)
      : Module("Confused"), right_(context, 8, AttentionHeads{2, 2, 4, 0}, false) {
    AddParameter({right_.parameters()[0].spec, ShardAxis::kRows, true, {}});
  }
  std::span<const ShardName> shard_names() const override { return right_.shard_names(); }
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override {
    return right_.Place(name, shard_id == "k" ? "v" : shard_id == "v" ? "k" : shard_id, spec);
  }

 private:
  QKVParallelLinear right_;
};

TEST(LoadWeights, IsWrongInTheSameWayAsThePlanWhereALayerAnswersWrongly) {
  const LayerContext context{{0, 1}, DType::kF32, true};
  Weights weights;
  for (const char* shard : {"q", "k", "v"}) {
    const auto seed = static_cast<std::uint32_t>(weights.size());
    weights.AddRandom({std::string(shard) + "_proj.weight", DType::kF32, {8, 8}}, seed);
  }
  Tree right;
  right.Add("qkv_proj", std::make_unique<QKVParallelLinear>(context, 8, AttentionHeads{2, 2, 4, 0}, false));
  Tree wrong;
  wrong.Add("qkv_proj", std::make_unique<Confused>(context));
  const BytesByName expected = Loaded(right, weights);
  EXPECT_EQ(Planned(right, weights), expected);
  EXPECT_NE(Planned(wrong, weights), expected);
  EXPECT_NE(Loaded(wrong, weights), expected);
  EXPECT_EQ(Planned(wrong, weights), Loaded(wrong, weights));
}

TEST(LoadWeights, GivesTheSameBytesInAnyOrderAndAnySplitIntoBuckets) {
  const TinyOptions options{.tp_rank = 1, .tp_size = 2, .layers = 2};
  const Weights weights = TinyWeights(options);
  const auto reference = TinyModel(options);
  const BytesByName expected = Loaded(*reference, weights);
  std::mt19937 random(3);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<std::size_t> order(weights.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, random);
    const auto model = TinyModel(options);
    for (std::size_t begin = 0; begin < order.size();) {
      const std::size_t count = std::min<std::size_t>(1 + random() % 5, order.size() - begin);
      const auto bucket = std::span(order).subspan(begin, count);
      EXPECT_EQ(model->load_weights(*weights.Stream(bucket)).size(), count);
      begin += count;
    }
    EXPECT_EQ(Stored(*model), expected);
  }
}

TEST(LoadWeights, KeepsAddressesWhenItLoadsAgain) {
  const auto model = TinyModel({});
  const Weights weights = TinyWeights({});
  (void)Loaded(*model, weights);
  const Parameter& norm = model->children()[0].second->children()[2].second->parameters()[0];
  const std::byte* address = norm.storage.data();
  (void)Loaded(*model, weights);
  EXPECT_EQ(norm.storage.data(), address);
}

TEST(LoadWeights, LoadsFusedTensorsAsTheirParts) {
  const TinyOptions options{.tp_rank = 2, .tp_size = 4};
  const Weights parts = TinyWeights(options);
  const auto concatenated = [&](const std::vector<std::string>& names) {
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (std::ranges::count(names, parts.spec(i).name) == 0) continue;
      bytes.insert(bytes.end(), parts.bytes(i).begin(), parts.bytes(i).end());
    }
    return bytes;
  };
  const std::string layer = "model.layers.0.";
  Weights fused;
  fused.AddRandom({layer + "self_attn.qkv_proj.weight", DType::kF32, {48, 16}}, 0);
  fused.bytes(0) = concatenated(
      {layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight"});
  fused.AddRandom({layer + "mlp.gate_up_proj.weight", DType::kF32, {48, 16}}, 0);
  fused.bytes(1) = concatenated({layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight"});

  const auto reference = TinyModel(options);
  const BytesByName expected = Loaded(*reference, parts);
  const auto model = TinyModel(options);
  (void)Loaded(*model, parts);
  // Over other bytes first, so that nothing is right by accident.
  Weights zeros = fused;
  for (std::size_t i = 0; i < 2; ++i) std::ranges::fill(zeros.bytes(i), std::byte{0});
  (void)Loaded(*model, zeros);
  EXPECT_NE(Stored(*model), expected);
  (void)Loaded(*model, fused);
  EXPECT_EQ(Stored(*model), expected);
}

TEST(LoadWeights, LoadsATiedHeadAsTheEmbedding) {
  const TinyOptions options{.tied = true};
  const Weights weights = TinyWeights(options);
  const auto reference = TinyModel(options);
  const BytesByName expected = Loaded(*reference, weights);
  Weights headed;
  headed.AddRandom({"lm_head.weight", DType::kF32, {100, 16}}, 0);  // the seed of the embedding, which comes first
  const auto model = TinyModel(options);
  EXPECT_THAT(model->load_weights(*headed.Stream()), ::testing::ElementsAre("lm_head.weight"));
  const Parameter& embedding = model->children()[0].second->children()[0].second->parameters()[0];
  const auto bytes = embedding.storage.span();
  EXPECT_EQ(std::vector(bytes.begin(), bytes.end()), expected.at("model.embed_tokens.weight"));
}

TEST(LoadWeights, AcceptsATiedPairOfTheSameBytesAlone) {
  const TinyOptions options{.tied = true};
  for (const std::uint32_t seed : {0U, 1U}) {
    for (const bool head_first : {false, true}) {
      Weights both;
      both.AddRandom({head_first ? "lm_head.weight" : "model.embed_tokens.weight", DType::kF32, {100, 16}}, 0);
      both.AddRandom({head_first ? "model.embed_tokens.weight" : "lm_head.weight", DType::kF32, {100, 16}}, seed);
      const auto model = TinyModel(options);
      const std::string error = ErrorOf([&] { (void)model->load_weights(*both.Stream()); });
      EXPECT_THAT(error, seed == 0 ? HasSubstr("no error") : HasSubstr("and holds other bytes"));
    }
  }
}

// The layer that docs/models.md shows: every rank holds every tp_size-th row.
class StridedLinear final : public Module {
 public:
  StridedLinear(const LayerContext& context, Shape whole)
      : Module("StridedLinear"),
        whole_(std::move(whole)),
        tp_rank_(context.parallel.tp_rank),
        tp_size_(context.parallel.tp_size) {
    AddParameter({{"weight", context.dtype, {whole_[0] / tp_size_, whole_[1]}}, ShardAxis::kRows, true, {}});
  }
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view, const TensorSpec& spec) const override {
    const std::uint32_t index = ParameterIndex(name);
    if (spec.shape != whole_) {
      throw Error(ErrorCode::kInvalidArgument, "expected " + ToString(whole_) + ", got " + Describe(spec));
    }
    const Shape& local = parameters()[index].spec.shape;
    std::vector<PlacedPiece> pieces;
    for (std::int64_t row = 0; row < local[0]; ++row) {
      pieces.push_back({index, Box::Slice(whole_, 0, row * tp_size_ + tp_rank_, 1), Box::Slice(local, 0, row, 1), {}});
    }
    return pieces;
  }

 private:
  Shape whole_;
  std::int64_t tp_rank_;
  std::int64_t tp_size_;
};

TEST(LoadWeights, TakesALayerThatAUserWrote) {
  Tree root("MineForCausalLM");
  root.Add("linear", std::make_unique<StridedLinear>(LayerContext{{1, 3}, DType::kF32, true}, Shape{12, 2}));
  Weights weights;
  weights.AddCounting({"linear.weight", DType::kF32, {12, 2}}, 0.0F);
  const BytesByName loaded = Loaded(root, weights);
  EXPECT_EQ(Planned(root, weights), loaded);
  std::vector<float> rows(8);
  std::memcpy(rows.data(), loaded.at("linear.weight").data(), sizeof(float) * rows.size());
  EXPECT_THAT(rows, ::testing::ElementsAre(2, 3, 8, 9, 14, 15, 20, 21));
}

TEST(LoadWeights, RefusesWhatItCannotPlace) {
  const auto model = TinyModel({});
  const auto error_for = [&](const TensorSpec& spec, int times = 1) {
    Weights weights;
    for (int i = 0; i < times; ++i) weights.AddRandom(spec, 0);
    return ErrorOf([&] { (void)model->load_weights(*weights.Stream()); });
  };
  EXPECT_THAT(error_for({"model.norm.weight", DType::kF32, {16}}, 2), HasSubstr("'model.norm.weight' came twice"));
  EXPECT_THAT(error_for({"model.norm.weight", DType::kF32, {17}}),
              HasSubstr("layer model.norm: 'model.norm.weight' expected [16] f32, got [17] f32"));
  EXPECT_THAT(error_for({"model.nrom.weight", DType::kF32, {16}}), HasSubstr("There is no module or parameter named"));
}

TEST(LoadWeights, SkipsWhatARuleSkips) {
  const auto model = TinyModel({});
  Weights weights;
  weights.AddRandom({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {2}}, 0);
  EXPECT_TRUE(model->load_weights(*weights.Stream()).empty());
}

}  // namespace
}  // namespace layercast
