#include "engine_side/reload/pipeline/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine_side/quant/recipes/recipe_parts.h"
#include "layercast/error.h"
#include "src/tensor/cast.h"
#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Rig;
using testing::RigOptions;

constexpr const char* kQkv = "model.layers.0.self_attn.qkv_proj";
constexpr const char* kDown = "model.layers.0.mlp.down_proj";

// A stage, and one layer's parameters in full precision.
struct Stage {
  explicit Stage(const RigOptions& options, const char* layer) : rig(options) {
    const PlannedLayer& planned = rig.plan.layers()[rig.LayerOf(layer)];
    parameter = planned.first_parameter;
    weight.assign(static_cast<std::size_t>(spec().num_elements()), 0x3F80);  // 1.0
  }
  const TensorSpec& spec() const { return rig.plan.parameters()[parameter].spec; }
  MatrixView rows() const { return AsMatrix(spec(), reinterpret_cast<const std::byte*>(weight.data())); }
  std::vector<float> Scales() {
    const std::span<std::byte> bytes = rig.staging.BytesOf(rig.layout.TensorsOf(parameter)[1]);
    std::vector<float> scales(bytes.size() / sizeof(float));
    std::memcpy(scales.data(), bytes.data(), bytes.size());
    return scales;
  }

  Rig rig;
  std::uint32_t parameter = 0;
  std::vector<std::uint16_t> weight;  // bf16
  AmaxTable amax{rig.plan, rig.manifest};
  QuantizeStage quantize{rig.plan, rig.manifest, rig.layout, *rig.recipe, amax, rig.staging, rig.work};
};

void SetAmax(Stage& stage, const std::string& tensor, float amax) {
  stage.amax.Set(static_cast<std::uint32_t>(stage.rig.manifest.Find("model.layers.0." + tensor + ".weight")), amax);
}

TEST(Quantize, AFusedWeightsScaleIsOfAllItsPartsOverAllRanks) {
  for (const int rank : {0, 1}) {
    Stage stage({.recipe = "fp8_per_tensor", .parallel = {rank, 2}}, kQkv);
    SetAmax(stage, "self_attn.q_proj", 2);
    SetAmax(stage, "self_attn.k_proj", 44.8F);
    SetAmax(stage, "self_attn.v_proj", 3);
    stage.quantize.Run(stage.parameter, stage.rows().data);
    EXPECT_THAT(stage.Scales(), ElementsAre(RoundTo(DType::kBF16, 44.8F) / 448.0F));
  }
}

TEST(Quantize, RowsOfAWeightThatIsSplitByColumnsScaleByAllColumns) {
  Stage stage({.recipe = "fp8_per_channel", .parallel = {1, 2}}, kDown);
  std::vector<float> rows(128, 4.48F);
  rows[5] = 8.96F;
  const auto tensor = static_cast<std::uint32_t>(stage.rig.manifest.Find(std::string(kDown) + ".weight"));
  stage.amax.AddAxes(tensor, kKeptRows, Box::Whole(stage.rig.manifest.entry(tensor).spec.shape), rows);
  stage.quantize.Run(stage.parameter, stage.rows().data);
  EXPECT_EQ(stage.Scales()[4], RoundTo(DType::kBF16, 4.48F) / 448.0F);
  EXPECT_EQ(stage.Scales()[5], RoundTo(DType::kBF16, 8.96F) / 448.0F);
}

TEST(Quantize, RefusesToGuessTheScaleOfAPartOfAWeight) {
  Stage channels({.recipe = "fp8_per_channel", .parallel = {1, 2}}, kDown);
  EXPECT_THAT(ErrorOf([&] { channels.quantize.Run(channels.parameter, channels.rows().data); }),
              AllOf(HasSubstr("layer model.layers.0.mlp.down_proj"), HasSubstr("by row, which did not come")));
  Stage whole({.recipe = "fp8_per_tensor", .parallel = {1, 2}}, kQkv);
  SetAmax(whole, "self_attn.k_proj", -1);
  EXPECT_THAT(ErrorOf([&] { whole.quantize.Run(whole.parameter, whole.rows().data); }),
              AllOf(HasSubstr("layer model.layers.0.self_attn.qkv_proj"), HasSubstr("which did not come")));
}

TEST(Quantize, NamesLayerParameterAndPlaceOfANaN) {
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    for (const std::uint16_t bad : {std::uint16_t{0x7FC0}, std::uint16_t{0x7F80}, std::uint16_t{0xFF80}}) {
      Stage stage({.recipe = recipe}, kQkv);
      stage.weight[3 * 128 + 17] = bad;
      EXPECT_THAT(ErrorOf([&] { stage.quantize.Run(stage.parameter, stage.rows().data); }, ErrorCode::kCorrupt),
                  AllOf(HasSubstr("layer " + std::string(kQkv) + ": 'model.layers.0.self_attn.q_proj.weight': "),
                        HasSubstr(" at row 3, column 17")));
    }
  }
}

// The value itself may lie in another rank's part.
TEST(Quantize, NamesTheTensorWhoseMagnitudeTheModelsDtypeCannotHold) {
  const RigOptions fused{.recipe = "fp8_per_tensor", .parallel = {1, 2}, .dtype = DType::kF16};
  Stage whole(fused, kQkv);
  SetAmax(whole, "self_attn.k_proj", 70144);
  const std::string beyond = "its largest magnitude is 70144 (bf16), which is beyond 65504, the largest finite f16";
  EXPECT_EQ(ErrorOf([&] { whole.quantize.Run(whole.parameter, whole.rows().data); }, ErrorCode::kCorrupt),
            "layer " + std::string(kQkv) + ": 'model.layers.0.self_attn.k_proj.weight': " + beyond);
  Stage rows({.recipe = "fp8_per_channel", .parallel = {1, 2}, .dtype = DType::kF16}, kDown);
  std::vector<float> amax(128, 1.0F);
  amax[5] = 70144;
  const auto tensor = static_cast<std::uint32_t>(rows.rig.manifest.Find(std::string(kDown) + ".weight"));
  rows.amax.AddAxes(tensor, kKeptRows, Box::Whole(rows.rig.manifest.entry(tensor).spec.shape), amax);
  EXPECT_EQ(ErrorOf([&] { rows.quantize.Run(rows.parameter, rows.rows().data); }, ErrorCode::kCorrupt),
            "layer " + std::string(kDown) + ": '" + kDown + ".weight': " + beyond);
}

TEST(Quantize, CopiesWhatIsNotQuantized) {
  Stage stage({.recipe = "fp8_per_block"}, "model.norm");
  stage.weight[7] = 0x4000;
  stage.quantize.Run(stage.parameter, stage.rows().data);
  const auto staged = stage.rig.staging.BytesOf(stage.rig.layout.TensorsOf(stage.parameter)[0]);
  EXPECT_EQ(std::memcmp(staged.data(), stage.weight.data(), staged.size()), 0);
}

// Of another recipe; counts how often it was asked what a weight becomes.
class CountedRecipe final : public Recipe {
 public:
  explicit CountedRecipe(const Recipe& of) : of_(of) {}
  std::string_view name() const override { return of_.name(); }
  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override {
    ++asked;
    return of_.KernelTensors(dtype, rows, cols);
  }
  AmaxNeed Needs(ShardAxis axis) const override { return of_.Needs(axis); }
  std::int64_t row_granularity() const override { return of_.row_granularity(); }
  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override {
    of_.Quantize(piece, first_row, amax, outputs, pool);
  }
  CodeFormat format() const override { return of_.format(); }

  mutable int asked = 0;

 private:
  const Recipe& of_;
};

TEST(Quantize, NamesKernelTensorsOnceHoweverManyPiecesCome) {
  Stage stage({.recipe = "fp8_per_channel"}, kQkv);
  const CountedRecipe recipe(*stage.rig.recipe);
  QuantizeStage quantize(stage.rig.plan, stage.rig.manifest, stage.rig.layout, recipe, stage.amax, stage.rig.staging,
                         stage.rig.work);
  const int asked = recipe.asked;
  const MatrixView rows = stage.rows();
  for (std::int64_t row = 0; row < rows.rows; ++row) quantize.RunArrived(stage.parameter, 0, RowsOf(rows, row, 1), row);
  EXPECT_EQ(recipe.asked, asked);
}

}  // namespace
}  // namespace layercast
