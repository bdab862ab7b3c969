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

#include "layercast/error.h"
#include "tests/reload/rig.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::Differences;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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

ServedBytes Load(const RigOptions& options, const Weights& weights, bool direct, std::uint64_t chunk_bytes) {
  Rig rig(options, std::byte{0xA5}, &weights);
  const std::vector<Piece> pieces = rig.Pieces(chunk_bytes);
  ReloadPipeline pipeline(rig.parts(), direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
  rig.GiveAmax(pipeline.amax());
  for (const Piece& piece : pieces) pipeline.Accept(piece, rig.ViewOf(piece));
  pipeline.Finish();
  return rig.Staged();
}

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
    EXPECT_THAT(Differences(Load(options, foreign.weights, false, chunk_bytes), expected), IsEmpty()) << chunk_bytes;
    EXPECT_THAT(Differences(Load(options, foreign.weights, true, chunk_bytes), expected), IsEmpty()) << chunk_bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, TransformsOfEveryRecipe,
                         ::testing::Combine(::testing::Values("none", "fp8_per_tensor", "fp8_per_channel",
                                                              "fp8_per_block", "mxfp8"),
                                            ::testing::Values(std::pair(0, 1), std::pair(1, 2), std::pair(3, 4)),
                                            ::testing::Values(DType::kBF16, DType::kF32)));

// Rows of a row-parallel weight lie across ranks: their magnitudes are the trainer's to know.
TEST(SourceTransforms, AreRefusedWhereTheRecipeNeedsMagnitudesThatNobodyKnows) {
  RigOptions options{.recipe = "fp8_per_channel", .parallel = {0, 2}};
  Weights weights = testing::RigWeights(options);
  options.transforms = SourceTransforms({SourceTransform::Reshape(kSuffix, "down_proj.weight", {128, 256})});
  Weights reshaped;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    TensorSpec spec = weights.spec(i);
    if (spec.name.ends_with("down_proj.weight")) spec.shape = {8, 16, 256};
    reshaped.AddRandom(spec, 1);
  }
  const Rig rig(options, {}, &reshaped);
  EXPECT_THAT(testing::ErrorOf([&] { (void)AmaxRequests(rig.plan, *rig.recipe); }, ErrorCode::kUnsupported),
              AllOf(HasSubstr("mlp.down_proj.weight"), HasSubstr("reshaped")));
  options.parallel = {};
  const Rig alone(options, {}, &reshaped);
  EXPECT_THAT(AmaxRequests(alone.plan, *alone.recipe), ::testing::SizeIs(1U)) << "o_proj's";
}

}  // namespace
}  // namespace layercast
