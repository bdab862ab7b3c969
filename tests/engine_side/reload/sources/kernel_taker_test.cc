#include "engine_side/reload/sources/kernel_taker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/reload/sources/kernel_files.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"
#include "tests/support/reload/kernel_load.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Rig;
using testing::Weights;

class KernelTakerTest : public ::testing::Test {
 protected:
  KernelTakerTest() {
    for (const KernelTensor& tensor : rig_.layout.tensors()) kernel_.AddRandom(tensor.spec, 2);
  }
  std::vector<NamedTensor> Tensors() {
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < kernel_.size(); ++i) tensors.push_back(kernel_.at(i));
    return tensors;
  }
  std::size_t Load(std::vector<NamedTensor> tensors) {
    return testing::LoadKernelTensors(rig_, rig_.layout, *rig_.recipe, *MakeWeightsIterator(std::move(tensors)));
  }

  Rig rig_{{.recipe = "none", .tied = true}};
  Weights kernel_;
};

TEST_F(KernelTakerTest, CopiesEveryTensorStraight) {
  std::vector<NamedTensor> tensors = Tensors();
  std::reverse(tensors.begin(), tensors.end());
  const std::size_t loaded = Load(tensors);
  testing::ServedBytes expected;
  for (std::size_t i = 0; i < kernel_.size(); ++i) expected[kernel_.spec(i).name] = kernel_.bytes(i);
  EXPECT_THAT(Differences(rig_.Staged(), expected), IsEmpty());
  EXPECT_EQ(loaded, kernel_.size());
}

TEST_F(KernelTakerTest, NamesEverythingThatIsWrong) {
  std::vector<NamedTensor> tensors = Tensors();
  const std::string missing = tensors.back().name;
  tensors.back().name = "model.layers.0.self_attn.q_proj.weight";  // a checkpoint's name
  tensors[1].tensor.shape.push_back(1);
  tensors.push_back(tensors[2]);
  EXPECT_THAT(
      ErrorOf([&] { Load(tensors); }),
      AllOf(HasSubstr("1 missing: '" + missing + "'"),
            HasSubstr("2 unexpected or repeated: 'model.layers.0.self_attn.q_proj.weight', '" + tensors[2].name + "'"),
            HasSubstr("1 that do not fit: '" + tensors[1].name + "': expected [")));
}

TEST_F(KernelTakerTest, RefusesANaNByNameAndIndex) {
  const std::size_t norm = testing::IndexOf(kernel_, "model.norm.weight");
  const std::uint16_t nan = 0x7FC0;
  std::memcpy(kernel_.bytes(norm).data() + 10, &nan, sizeof(nan));
  EXPECT_THAT(ErrorOf([&] { Load(Tensors()); }), AllOf(HasSubstr("'model.norm.weight'"), HasSubstr("[5]")));
}

// What was written by an engine without --power-of-two-scales.
TEST(KernelTaker, RefusesScalesThatAreNoPowersOfTwoWhereTheRecipeRoundsThem) {
  const auto load = [](bool rounded, float scale) {
    Rig rig({.recipe = "fp8_per_block"});
    const auto recipe = MakeRecipe("fp8_per_block", {.power_of_two_scales = rounded});
    const KernelLayout layout(rig.plan, *recipe, rig.captured);
    Weights kernel;
    for (const KernelTensor& tensor : layout.tensors()) {
      if (tensor.spec.name.ends_with("weight_scale_inv")) {
        kernel.Add(tensor.spec, std::vector<float>(static_cast<std::size_t>(tensor.spec.num_elements()), scale));
      } else {
        kernel.AddBytes(tensor.spec, std::vector<std::byte>(tensor.num_bytes));
      }
    }
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < kernel.size(); ++i) tensors.push_back(kernel.at(i));
    testing::LoadKernelTensors(rig, layout, *recipe, *MakeWeightsIterator(std::move(tensors)));
  };
  EXPECT_EQ(ErrorOf([&] { load(false, 0.75F); }), "no error");
  EXPECT_EQ(ErrorOf([&] { load(true, 0.0625F); }), "no error");
  EXPECT_THAT(ErrorOf([&] { load(true, 0.75F); }),
              HasSubstr(".weight_scale_inv': expected scales that are powers of two, got 0.750000 at element 0"));
  EXPECT_THAT(ErrorOf([&] { load(true, 0.0F); }), HasSubstr("powers of two, got 0.000000"));
}

TEST_F(KernelTakerTest, ReadsARanksPartsAndSaysWhichRankIsNotThere) {
  const TempFolder folder;
  const std::vector<NamedTensor> tensors = Tensors();
  const std::span<const NamedTensor> all(tensors);
  WriteSafetensors(folder / "model-rank-1-part-0.safetensors", all.first(3));
  WriteSafetensors(folder / "model-rank-1-part-1.safetensors", all.subspan(3));
  const KernelFiles files(folder.path(), {.tp_rank = 1, .tp_size = 2}, "none");
  ASSERT_EQ(files.specs().size(), tensors.size());
  const auto weights = files.Weights();
  for (const TensorSpec& spec : files.specs()) {
    const std::optional<NamedTensor> tensor = weights->Next();
    ASSERT_TRUE(tensor);
    EXPECT_EQ(tensor->name, spec.name);
  }
  EXPECT_FALSE(weights->Next());
  EXPECT_THAT(
      ErrorOf([&] { KernelFiles(folder.path(), {.tp_rank = 0, .tp_size = 2}, "none"); }),
      AllOf(::testing::StartsWith("expected "), HasSubstr("model-rank-0-part-0.safetensors, which is not there")));
  EXPECT_THAT(ErrorOf([&] { KernelFiles(folder.path(), {.tp_rank = 1, .tp_size = 1}, "none"); }), HasSubstr("rank"));
}

}  // namespace
}  // namespace layercast
