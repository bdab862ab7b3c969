// That errors say where in the checkpoint a wrong value is, whatever became of it on its way into a parameter.
#include "engine_side/reload/work/wrong_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "src/tensor/cast.h"
#include "src/tensor/walk.h"
#include "tests/support/reload/other_layouts.h"
#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Rig;
using testing::RigOptions;

constexpr ParallelConfig kSecondOfTwo{1, 2};
constexpr const char* kAttention = "model.layers.0.self_attn";

// The index in the tensor of a placement's element number `number`: counted, one by one.
std::int64_t CountedIndex(const Rig& rig, const Placement& placement, std::int64_t number) {
  const Shape& shape = rig.plan.SourceShape(rig.manifest, placement.tensor);
  const Box& box = placement.source;
  for (std::int64_t index = 0; index < NumElements(shape); ++index) {
    bool inside = true;
    for (auto [d, left] = std::pair(shape.size(), index); d-- > 0; left /= shape[d]) {
      inside = inside && left % shape[d] >= box.begin[d] && left % shape[d] < box.begin[d] + box.extent[d];
    }
    if (inside && number-- == 0) return index;
  }
  ADD_FAILURE() << "no such element";
  return -1;
}

// Holds ThrowWrongWeight against the walk by which a device puts elements into parameters.
void ExpectEveryPlacementNamed(const Rig& rig) {
  for (const Placement& placement : rig.plan.placements()) {
    const PlannedParameter& parameter = rig.plan.parameters()[placement.parameter];
    if (placement.shared || BitsPerElement(parameter.spec.dtype) % 8 != 0) continue;
    const auto entry = rig.manifest.entry(placement.tensor);
    const Walk walk = Walk::Into(parameter.spec.shape, placement.destination, placement.order);
    const std::int64_t count = placement.destination.num_elements();
    const std::int64_t cols = parameter.spec.shape.back();
    for (const std::int64_t number : {std::int64_t{0}, std::min<std::int64_t>(1, count - 1), count / 3, count - 1}) {
      const std::int64_t row = walk.At(number) / cols;
      const std::int64_t rows = parameter.quantize ? MatrixStack::Of(parameter.spec.shape).rows : row + 1;
      const PlacedMatrix place{rig.plan, rig.manifest, placement.parameter, row / rows};
      EXPECT_EQ(ErrorOf([&] { ThrowWrongWeight(place, row % rows, walk.At(number) % cols, "it is wrong"); }),
                "layer " + rig.plan.layers()[parameter.layer].path + ": '" + entry.spec.name + "': it is wrong at " +
                    PlaceIn(entry.spec.shape, CountedIndex(rig, placement, number)));
    }
  }
}

TEST(WrongValues, AreNamedByTheirPlaceInTheWholeTensorOnEveryRank) {
  for (const ParallelConfig& parallel : {ParallelConfig{0, 1}, kSecondOfTwo, ParallelConfig{2, 4}}) {
    ExpectEveryPlacementNamed(Rig({.parallel = parallel}));
    for (const testing::ExpertForm form : testing::kExpertForms) {
      ExpectEveryPlacementNamed(Rig({.recipe = "fp8_per_channel", .parallel = parallel, .experts = form}));
    }
    RigOptions other{.parallel = parallel, .transforms = testing::ScatteredTransforms()};
    const testing::Weights scattered = testing::Scattered(testing::RigWeights({}));
    ExpectEveryPlacementNamed(Rig(other, std::byte{0xA5}, &scattered));
    other.transforms = testing::SharedTransforms(1);
    const testing::Weights shared = testing::Shared(testing::RigWeights({}));
    ExpectEveryPlacementNamed(Rig(other, std::byte{0xA5}, &shared));
  }
}

TEST(WrongValues, APlaceIsSaidInTheTensorsOwnAxes) {
  EXPECT_EQ(PlaceIn({}, 0), "element 0");
  EXPECT_EQ(PlaceIn({9}, 7), "element 7");
  EXPECT_EQ(PlaceIn({4, 5}, 13), "row 2, column 3");
  EXPECT_EQ(PlaceIn({3, 4, 5}, 33), "matrix 1, row 2, column 3");
}

// What an engine says of a version with this value at `index` of a tensor.
struct Wrong {
  std::string tensor;
  std::int64_t index;
  double value;
};

std::string ErrorOfLoading(const RigOptions& options, const Wrong& wrong, bool direct, std::uint64_t chunk_bytes) {
  Rig rig(options);
  const std::size_t at = testing::IndexOf(rig.weights, wrong.tensor);
  const auto size = static_cast<std::size_t>(BitsPerElement(options.source)) / 8;
  Cast(DType::kF64, reinterpret_cast<const std::byte*>(&wrong.value), options.source,
       rig.weights.bytes(at).data() + static_cast<std::size_t>(wrong.index) * size, 1);
  const std::vector<Piece> pieces = rig.Pieces(chunk_bytes);
  ReloadPipeline pipeline(rig.parts(), direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
  rig.GiveAmax(pipeline.amax());
  return ErrorOf(
      [&] {
        for (const Piece& piece : pieces) pipeline.Accept(piece, rig.ViewOf(piece));
        pipeline.Finish();
      },
      ErrorCode::kCorrupt);
}

void ExpectSaid(const RigOptions& options, const Wrong& wrong, const std::string& said) {
  for (const bool direct : {false, true}) {
    for (const std::uint64_t chunk_bytes : {std::uint64_t{4} << 20, std::uint64_t{3000}}) {
      EXPECT_EQ(ErrorOfLoading(options, wrong, direct, chunk_bytes), said)
          << options.recipe << (direct ? ", direct" : "") << ", in chunks of " << chunk_bytes;
    }
  }
}

TEST(WrongValues, ACastThatMakesOneInfiniteNamesTheTensorRowValueAndCast) {
  struct Cast {
    DType source, model;
    double value;
    const char* said;
  };
  const std::string qkv = std::string("layer ") + kAttention + ".qkv_proj: '" + kAttention + ".k_proj.weight': ";
  for (const Cast& c : {
           Cast{DType::kBF16, DType::kF16, 70'000, "70144 (bf16), which is beyond 65504, the largest finite f16"},
           Cast{DType::kF32, DType::kF16, -65'520, "-65520 (f32), which is beyond -65504, the largest finite f16"},
           Cast{DType::kF32, DType::kBF16, std::numeric_limits<float>::max(),
                "3.40282e+38 (f32), which is beyond 3.38953e+38, the largest finite bf16"},
           Cast{DType::kF64, DType::kF16, 1e39, "1e+39 (f64), which is beyond 65504, the largest finite f16"},
           Cast{DType::kF64, DType::kBF16, 1e39, "1e+39 (f64), which is beyond 3.38953e+38, the largest finite bf16"},
           Cast{DType::kF64, DType::kF32, -1e39, "-1e+39 (f64), which is beyond -3.40282e+38, the largest finite f32"},
       }) {
    for (const std::string& recipe : KnownRecipes()) {
      const RigOptions options{.recipe = recipe, .parallel = kSecondOfTwo, .dtype = c.model, .source = c.source};
      ExpectSaid(options, {std::string(kAttention) + ".k_proj.weight", 100 * 128 + 7, c.value},
                 qkv + "row 100, column 7 holds " + c.said);
    }
    const RigOptions options{.parallel = kSecondOfTwo, .dtype = c.model, .source = c.source};
    ExpectSaid(options, {"model.norm.weight", 9, c.value},
               std::string("layer model.norm: 'model.norm.weight': element 9 holds ") + c.said);
    ExpectSaid(options, {"model.layers.0.mlp.down_proj.weight", 3 * 256 + 200, c.value},
               std::string("layer model.layers.0.mlp.down_proj: 'model.layers.0.mlp.down_proj.weight': row 3, column "
                           "200 holds ") +
                   c.said);
  }
}

TEST(WrongValues, OneThatTheTensorHoldsIsNamedCastOrNot) {
  const std::string v_proj = std::string(kAttention) + ".v_proj.weight";
  for (const std::string& recipe : KnownRecipes()) {
    for (const DType source : {DType::kF16, DType::kBF16, DType::kF64}) {
      const RigOptions options{.recipe = recipe, .parallel = kSecondOfTwo, .dtype = DType::kF16, .source = source};
      const std::string said =
          std::string("layer ") + kAttention + ".qkv_proj: '" + v_proj + "': expected finite values, got ";
      ExpectSaid(options, {v_proj, 127 * 128 + 127, std::numeric_limits<double>::quiet_NaN()},
                 said + "NaN at row 127, column 127");
      ExpectSaid(options, {v_proj, 64 * 128, -std::numeric_limits<double>::infinity()},
                 said + "-infinity at row 64, column 0");
    }
  }
}

}  // namespace
}  // namespace layercast
