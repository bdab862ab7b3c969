// A checkpoint that lays its tensors out in ways of its own comes to the same bytes as the usual one, by load_weights
// and by the pipeline, in whole layers and direct.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine_side/reload/layout/amax_requests.h"
#include "layercast/error.h"
#include "tests/support/error_of.h"
#include "tests/support/reload/other_layouts.h"
#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

using testing::Differences;
using ::testing::IsEmpty;
using testing::LoadByPieces;
using testing::Rig;
using testing::RigOptions;
using testing::ServedBytes;
using testing::Weights;
using Bytes = std::vector<std::byte>;

constexpr auto kSuffix = NameRule::Match::kSuffix;

SourceTransforms Foreign() {
  return SourceTransforms({
      SourceTransform::Reshape(kSuffix, "embed_tokens.weight", {-1, 128}),
      SourceTransform::Squeeze(kSuffix, "input_layernorm.weight", 0),
      SourceTransform::Split(kSuffix, "qkv.weight", 0,
                             {{"q_proj.weight", 256}, {"k_proj.weight", 128}, {"v_proj.weight", 128}}),
      SourceTransform::Split(kSuffix, "qkv.bias", 0,
                             {{"q_proj.bias", 256}, {"k_proj.bias", 128}, {"v_proj.bias", 128}}),
      SourceTransform::Transpose(kSuffix, "o_proj.weight"),
      SourceTransform::Deinterleave(kSuffix, "gate_up.weight", 0, {"gate_proj.weight", "up_proj.weight"}),
  });
}

void Append(Bytes& to, std::span<const std::byte> bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

// The bytes of the rig's tensors as such a trainer has them, written out element by element and row by row.
class ForeignWeights {
 public:
  explicit ForeignWeights(const RigOptions& options) : usual_(testing::RigWeights(options)), dtype_(options.source) {
    for (std::size_t i = 0; i < usual_.size(); ++i) Add(i);
  }
  Weights weights;

 private:
  Bytes Of(const std::string& name) const { return usual_.bytes(testing::IndexOf(usual_, name)); }

  void Put(const std::string& name, Shape shape, const Bytes& bytes) {
    weights.AddCounting({name, dtype_, std::move(shape)}, 0);
    weights.bytes(weights.size() - 1) = bytes;
  }

  void Add(std::size_t index) {
    const TensorSpec& spec = usual_.spec(index);
    const std::string& name = spec.name;
    const auto below = [&](const char* from, const char* to) {
      return name.substr(0, name.find(from)) + to + name.substr(name.rfind('.'));
    };
    const Bytes& bytes = usual_.bytes(index);
    if (name == "model.embed_tokens.weight") return Put(name, {spec.shape[0], 4, 32}, bytes);
    if (name.ends_with("input_layernorm.weight")) return Put(name, {1, 128}, bytes);
    if (name.ends_with("o_proj.weight")) return Put(name, {256, 128}, Transposed(bytes, 128, 256));
    if (name.find("q_proj") != std::string::npos) {
      Bytes all = bytes;
      for (const char* part : {"k_proj", "v_proj"}) Append(all, Of(below("q_proj", part)));
      return Put(below("q_proj", "qkv"), name.ends_with("bias") ? Shape{512} : Shape{512, 128}, all);
    }
    if (name.find("gate_proj") != std::string::npos) {
      return Put(below("gate_proj", "gate_up"), {512, 128}, Alternating(bytes, Of(below("gate_proj", "up_proj"))));
    }
    for (const char* part : {"k_proj", "v_proj", "up_proj"}) {
      if (name.find(part) != std::string::npos) return;
    }
    Put(name, spec.shape, bytes);
  }

  Bytes Transposed(const Bytes& bytes, std::size_t rows, std::size_t cols) const {
    const auto size = static_cast<std::size_t>(BitsPerElement(dtype_) / 8);
    Bytes out(bytes.size());
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < cols; ++c) {
        std::memcpy(out.data() + (c * rows + r) * size, bytes.data() + (r * cols + c) * size, size);
      }
    }
    return out;
  }

  Bytes Alternating(const Bytes& even, const Bytes& odd) const {
    const auto row = static_cast<std::size_t>(128 * BitsPerElement(dtype_) / 8);
    Bytes out;
    for (std::size_t at = 0; at < even.size(); at += row) {
      Append(out, std::span(even).subspan(at, row));
      Append(out, std::span(odd).subspan(at, row));
    }
    return out;
  }

  Weights usual_;
  DType dtype_;
};

class TransformsOfEveryRecipe : public ::testing::TestWithParam<std::tuple<const char*, std::pair<int, int>, DType>> {};

TEST_P(TransformsOfEveryRecipe, ComeToTheBytesOfTheUsualCheckpoint) {
  const auto [recipe, rank, source] = GetParam();
  const RigOptions usual{.recipe = recipe, .parallel = {rank.first, rank.second}, .source = source};
  const ServedBytes expected = ServedSlowly(usual, testing::RigWeights(usual));
  RigOptions options = usual;
  options.transforms = Foreign();
  const ForeignWeights foreign(usual);
  EXPECT_THAT(Differences(ServedSlowly(options, foreign.weights), expected), IsEmpty()) << "load_weights";
  for (const std::uint64_t chunk_bytes : {4U << 20, 700U}) {
    EXPECT_THAT(Differences(LoadByPieces(options, foreign.weights, false, chunk_bytes), expected), IsEmpty())
        << chunk_bytes;
    EXPECT_THAT(Differences(LoadByPieces(options, foreign.weights, true, chunk_bytes), expected), IsEmpty())
        << chunk_bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, TransformsOfEveryRecipe,
                         ::testing::Combine(::testing::Values("none", "fp8_per_tensor", "fp8_per_channel",
                                                              "fp8_per_block", "mxfp8"),
                                            ::testing::Values(std::pair(0, 1), std::pair(1, 2), std::pair(3, 4)),
                                            ::testing::ValuesIn(testing::ModelDTypes())));

TEST_P(TransformsOfEveryRecipe, FindElementsAndTheirScalesWhereverTheyAre) {
  const auto [recipe, rank, source] = GetParam();
  const RigOptions usual{.recipe = recipe, .parallel = {rank.first, rank.second}, .source = source};
  const ServedBytes expected = ServedSlowly(usual, testing::RigWeights(usual));
  RigOptions options = usual;
  options.transforms = testing::ScatteredTransforms();
  const Weights scattered = testing::Scattered(testing::RigWeights(usual));
  EXPECT_THAT(Differences(ServedSlowly(options, scattered), expected), IsEmpty()) << "load_weights";
  for (const std::uint64_t chunk_bytes : {4U << 20, 700U}) {
    EXPECT_THAT(Differences(LoadByPieces(options, scattered, false, chunk_bytes), expected), IsEmpty()) << chunk_bytes;
    EXPECT_THAT(Differences(LoadByPieces(options, scattered, true, chunk_bytes), expected), IsEmpty()) << chunk_bytes;
  }
}

// A stack of experts as one long matrix, and one that is split into a matrix of each.
TEST_P(TransformsOfEveryRecipe, FindEachExpertAndItsScales) {
  const auto [recipe, rank, source] = GetParam();
  constexpr int kExperts = 5;
  RigOptions options{.recipe = recipe,
                     .parallel = {rank.first, rank.second},
                     .source = source,
                     .experts = testing::ExpertForm::kStacked};
  const Weights usual = testing::RigWeights(options);
  const ServedBytes expected = ServedSlowly(options, usual);
  std::vector<SourceTransform::Part> parts;
  for (int i = 0; i < kExperts; ++i) parts.push_back({"experts." + std::to_string(i) + ".down_proj.weight", 1});
  options.transforms = SourceTransforms({SourceTransform::Reshape(kSuffix, "experts.gate_up_proj", {kExperts, -1, 128}),
                                         SourceTransform::Split(kSuffix, "experts.down_proj", 0, std::move(parts)),
                                         SourceTransform::Squeeze(kSuffix, "experts.down_proj", 0)});
  Weights other;
  for (std::size_t i = 0; i < usual.size(); ++i) {
    TensorSpec spec = usual.spec(i);
    if (spec.name.ends_with("gate_up_proj")) spec.shape = {spec.shape[0] * spec.shape[1], spec.shape[2]};
    other.AddCounting(spec, 0);
    other.bytes(i) = usual.bytes(i);
  }
  EXPECT_THAT(Differences(ServedSlowly(options, other), expected), IsEmpty()) << "load_weights";
  for (const bool direct : {false, true}) {
    EXPECT_THAT(Differences(LoadByPieces(options, other, direct, 70'000), expected), IsEmpty());
  }
}

// Two matrices whose rows lie along one axis, and they themselves along the other: each row of each is an element.
TEST(SourceTransforms, AreRefusedWhereTheRecipeNeedsTheMagnitudeOfEachElement) {
  RigOptions options{.recipe = "fp8_per_channel", .parallel = {0, 2}};
  const Weights usual = testing::RigWeights(options);
  options.transforms = SourceTransforms({SourceTransform::Split(kSuffix, "both", 0,
                                                                {{"model.layers.0.self_attn.o_proj.weight", 256},
                                                                 {"model.layers.0.mlp.down_proj.weight", 256}}),
                                         SourceTransform::Transpose(kSuffix, "both")});
  Weights weights;
  for (std::size_t i = 0; i < usual.size(); ++i) {
    const std::string& name = usual.spec(i).name;
    if (!name.ends_with("down_proj.weight") && !name.ends_with("o_proj.weight")) weights.AddRandom(usual.spec(i), 1);
  }
  weights.AddRandom({"both", DType::kBF16, {512, 128}}, 1);
  const Rig rig(options, {}, &weights);
  EXPECT_EQ(
      testing::ErrorOf([&] { (void)AmaxRequests(rig.plan, rig.manifest, *rig.recipe); }, ErrorCode::kUnsupported),
      "model.layers.0.self_attn.o_proj.weight: the recipe's scales follow from magnitudes of rows over all ranks; "
      "of 'both' [512, 128] bf16, read as [512, 128] in parts of [256, 128], rows lie along axis 1: with its "
      "parts told apart these are all its elements; expected parts along an axis of their own (reshape, split, "
      "squeeze)");
}

}  // namespace
}  // namespace layercast
