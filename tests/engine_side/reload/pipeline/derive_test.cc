#include "engine_side/reload/pipeline/derive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/quant/dequantize.h"
#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/model/linear.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::EagerSource;
using testing::EngineMemory;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::ServedBytes;
using testing::Weights;

constexpr std::int64_t kRows = 192;
constexpr std::int64_t kCols = 64;

// "weight_T", the transpose of the weight, and "ratio", 1 / bias, in fp32. `calls` counts how often the first is made.
class Transposing final : public ColumnParallelLinear {
 public:
  Transposing(const LayerContext& context, int& calls) : ColumnParallelLinear(context, kCols, kRows, true) {
    const TensorSpec weight = parameters()[0].spec;
    const TensorSpec bias = parameters()[1].spec;
    const std::int64_t rows = weight.shape[0];
    AddDerived({{"weight_T", weight.dtype, {kCols, rows}}, {weight}, [rows, &calls](auto sources, auto derived) {
                  ++calls;
                  for (std::int64_t i = 0; i < rows * kCols; ++i) {
                    std::memcpy(derived.data() + (i % kCols * rows + i / kCols) * 2, sources[0].data() + i * 2, 2);
                  }
                }});
    AddDerived({{"ratio", DType::kF32, {rows}}, {bias}, [rows](auto sources, auto derived) {
                  for (std::int64_t i = 0; i < rows; ++i) {
                    std::uint32_t bits = 0;  // of a bf16, as those of an fp32
                    std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, sources[0].data() + i * 2, 2);
                    const float ratio = 1.0F / std::bit_cast<float>(bits);
                    std::memcpy(derived.data() + i * 4, &ratio, 4);
                  }
                }});
  }
};

class Tree final : public Module {
 public:
  Tree(const ParallelConfig& parallel, int& calls) : Module("Tree") {
    const LayerContext context{.parallel = parallel};
    AddChild("first", std::make_unique<Transposing>(context, calls));
    AddChild("last", std::make_unique<RowParallelLinear>(context, kRows, kCols, false));
  }
};

Weights VersionOf(std::uint32_t seed) {
  Weights weights;
  weights.AddRandom({"first.weight", DType::kBF16, {kRows, kCols}}, seed);
  weights.AddRandom({"last.weight", DType::kBF16, {kCols, kRows}}, seed + 100);
  weights.Add({"first.bias", DType::kBF16, {kRows}}, std::vector<float>(kRows, static_cast<float>(seed) + 0.5F));
  return weights;
}

struct DeriveRig {
  explicit DeriveRig(std::string recipe_name, const ReceiverOptions& options = {}, ParallelConfig parallel = {1, 2})
      : recipe(std::move(recipe_name)),
        engine(Tree(parallel, calls), *MakeRecipe(recipe)),
        receiver(std::make_unique<Tree>(parallel, calls), parallel, {.recipe = recipe}, engine.Adopt(), options) {}

  std::string recipe;
  int calls = 0;
  EngineMemory engine;
  Receiver receiver;
};

// The layer's weight as it is served, [rows, kCols] of bf16.
std::vector<std::byte> ServedWeight(const std::string& recipe_name, ServedBytes& served) {
  const std::int64_t rows = kRows / 2;
  if (recipe_name == "none") return served.at("first.weight");
  const std::unique_ptr<const Recipe> recipe = MakeRecipe(recipe_name);
  std::vector<KernelTensorView> tensors;
  for (const TensorSpec& spec : recipe->KernelTensors(DType::kBF16, rows, kCols)) {
    tensors.push_back(KernelTensorView::Of(spec.shape, served.at("first." + spec.name).data()));
  }
  std::vector<std::byte> values(static_cast<std::size_t>(rows * kCols * 2));
  WorkerPool pool(1);
  Dequantize(recipe->Read(tensors), DType::kBF16, values.data(), pool);
  return values;
}

void ExpectDerived(DeriveRig& rig, float bias) {
  ServedBytes served = rig.engine.Served();
  const std::vector<std::byte> weight = ServedWeight(rig.recipe, served);
  const std::vector<std::byte>& transposed = served.at("first.weight_T");
  ASSERT_EQ(transposed.size(), weight.size());
  const std::int64_t rows = kRows / 2;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < kCols; ++col) {
      ASSERT_EQ(std::memcmp(&transposed[static_cast<std::size_t>(col * rows + row) * 2],
                            &weight[static_cast<std::size_t>(row * kCols + col) * 2], 2),
                0)
          << rig.recipe << " " << row << " " << col;
    }
  }
  std::vector<float> ratios(static_cast<std::size_t>(rows));
  std::memcpy(ratios.data(), served.at("first.ratio").data(), ratios.size() * sizeof(float));
  EXPECT_THAT(ratios, ::testing::Each(1.0F / bias)) << rig.recipe;
}

TEST(Derive, IsDoneOnceForEachVersionFromWhatIsServed) {
  for (const std::string& recipe : KnownRecipes()) {
    for (const bool direct : {true, false}) {
      for (const CommitPolicy commit : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
        ReceiverOptions options;
        options.chunk_bytes = 5000;
        options.commit = commit;
        options.direct = direct;
        DeriveRig rig(recipe, options);
        const TempFolder a, b;  // files are read in the order of the layers
        testing::WriteCheckpoint(a, VersionOf(1));
        testing::WriteCheckpoint(b, VersionOf(2));
        rig.receiver.ReloadWeights(FromPath(a.path()));
        EXPECT_EQ(rig.calls, 1);
        ExpectDerived(rig, 1.5F);
        const Digest first = rig.receiver.captured().ServedDigest();
        EXPECT_NE(rig.receiver.ReloadWeights(FromPath(b.path())).served_digest, first);
        EXPECT_EQ(rig.calls, 2);
        ExpectDerived(rig, 2.5F);
        // In another order: the layer is whole when its bias comes, behind the next layer.
        EXPECT_EQ(rig.receiver.ReloadWeights(EagerSource(VersionOf(1))).served_digest, first);
        EXPECT_EQ(rig.calls, 3);
        EXPECT_TRUE(rig.engine.CanariesAreAlive());
      }
    }
  }
}

// What an engine serves of a version, as kernel tensors for another.
struct KernelTensors {
  explicit KernelTensors(const std::string& recipe) {
    DeriveRig rig(recipe);
    rig.receiver.ReloadWeights(EagerSource(VersionOf(1)));
    served = rig.engine.Served();
    for (const CapturedBuffer& buffer : rig.receiver.captured().buffers()) {
      specs.push_back({buffer.name, buffer.dtype, buffer.shape});
      tensors.push_back({buffer.name, {buffer.dtype, buffer.shape, served.at(buffer.name).data(), {}}, nullptr});
    }
  }
  void LoadInto(DeriveRig& rig) const {
    rig.receiver.ReloadWeights(FromIterator(MakeWeightsIterator(tensors), specs, false));
  }

  ServedBytes served;
  std::vector<TensorSpec> specs;
  std::vector<NamedTensor> tensors;
};

TEST(Derive, OfKernelTensorsComesWithThemAndIsComparedWithWhatTheyMake) {
  for (const std::string& recipe : KnownRecipes()) {
    KernelTensors kernel(recipe);
    DeriveRig twin(recipe);
    kernel.LoadInto(twin);
    EXPECT_EQ(twin.engine.Served(), kernel.served);
    EXPECT_EQ(twin.calls, 1);

    std::ranges::reverse(kernel.tensors);  // in whatever order
    std::ranges::reverse(kernel.specs);
    kernel.LoadInto(twin);
    kernel.served.at("first.weight_T")[17] ^= std::byte{1};
    EXPECT_THAT(ErrorOf([&] { kernel.LoadInto(twin); }, ErrorCode::kCorrupt),
                HasSubstr("layer first: 'first.weight_T': expected what derives from the layer's parameters that came "
                          "with it, got another byte at 17"));
    kernel.served.at("first.weight_T")[17] ^= std::byte{1};
    kernel.served.at("first.bias")[0] ^= std::byte{1};
    EXPECT_THAT(ErrorOf([&] { kernel.LoadInto(twin); }, ErrorCode::kCorrupt), HasSubstr("'first.ratio'"));
  }
}

TEST(Derive, OfKernelTensorsMustComeWithThem) {
  KernelTensors kernel("fp8_per_channel");
  DeriveRig twin("fp8_per_channel");
  const auto found = std::ranges::find(kernel.specs, "first.ratio", &TensorSpec::name);
  kernel.tensors.erase(kernel.tensors.begin() + (found - kernel.specs.begin()));
  kernel.specs.erase(found);
  EXPECT_THAT(ErrorOf([&] { kernel.LoadInto(twin); }), HasSubstr("missing: 'first.ratio'"));
}

TEST(Derive, RefusesAVersionThatMakesInfinitiesOfFiniteWeights) {
  DeriveRig rig("fp8_per_tensor");
  rig.receiver.ReloadWeights(EagerSource(VersionOf(1)));
  const ServedBytes before = rig.engine.Served();
  Weights zero_bias = VersionOf(2);
  std::ranges::fill(zero_bias.bytes(2), std::byte{0});
  EXPECT_THAT(ErrorOf([&] { rig.receiver.ReloadWeights(EagerSource(zero_bias)); }, ErrorCode::kCorrupt),
              AllOf(HasSubstr("layer first: 'first.ratio'"), HasSubstr("at element 0")));
  EXPECT_EQ(rig.engine.Served(), before);
}

TEST(Derive, RefusesASourceThatIsNotAsTheParameterIs) {
  struct Wrong final : ColumnParallelLinear {
    Wrong() : ColumnParallelLinear(LayerContext{}, kCols, kRows, false) {
      AddDerived(
          {{"sum", DType::kF32, {1}}, {{"weight", DType::kF32, {kRows, kCols}}}, DerivedTensor::NegatedExponential{}});
    }
  };
  EXPECT_THAT(ErrorOf([] { Wrong(); }),
              HasSubstr("'sum' derives from 'weight': expected [192, 64] bf16, got [192, 64] f32"));
}

TEST(Derive, NeedsABufferLikeAnyTensor) {
  int calls = 0;
  EngineMemory engine(Tree({}, calls), *MakeRecipe("none"));
  std::erase_if(engine.table(), [](const CapturedBuffer& buffer) { return buffer.name == "first.weight_T"; });
  EXPECT_THAT(ErrorOf([&] {
                Receiver(std::make_unique<Tree>(ParallelConfig(), calls), {}, {}, engine.Adopt())
                    .ReloadWeights(EagerSource(VersionOf(1)));
              }),
              HasSubstr("no captured buffer 'first.weight_T' ([64, 192] bf16)"));
}

}  // namespace
}  // namespace layercast
