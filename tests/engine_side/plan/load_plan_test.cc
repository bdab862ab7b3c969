#include "engine_side/plan/load_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/engine_side/plan/planned_model.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using testing::TinyModel;
using testing::TinyOptions;
using testing::TinySpecs;
using testing::Tree;
using ::testing::UnorderedElementsAre;

Manifest ManifestOf(const std::vector<TensorSpec>& specs) { return Manifest::OfSpecs("test", 0, specs); }

TensorSpec& Find(std::vector<TensorSpec>& specs, const std::string& name) {
  return *std::ranges::find(specs, name, &TensorSpec::name);
}

void Remove(std::vector<TensorSpec>& specs, const std::string& name) {
  std::erase_if(specs, [&](const TensorSpec& spec) { return spec.name == name; });
}

PlanProblems ProblemsOf(const std::vector<TensorSpec>& specs, const TinyOptions& options = {}, bool partial = false) {
  return LoadPlan::Check(*TinyModel(options), ManifestOf(specs), partial).problems;
}

TEST(LoadPlan, ListsEveryPlacementByLayerInTheTreesOrder) {
  const TinyOptions options{.tp_rank = 1, .tp_size = 2, .layers = 2};
  const auto model = TinyModel(options);
  std::vector<TensorSpec> specs = TinySpecs(options);
  std::ranges::reverse(specs);  // the manifest's order does not matter
  const Manifest manifest = ManifestOf(specs);
  const LoadPlan plan = LoadPlan::Build(*model, manifest);

  std::vector<std::string> paths;
  std::uint32_t next = 0;
  for (const PlannedLayer& layer : plan.layers()) {
    paths.push_back(layer.path);
    EXPECT_EQ(layer.first_placement, next);
    next += layer.num_placements;
    for (std::uint32_t i = 0; i < layer.num_placements; ++i) {
      const std::uint32_t parameter = plan.placements()[layer.first_placement + i].parameter;
      EXPECT_GE(parameter, layer.first_parameter);
      EXPECT_LT(parameter, layer.first_parameter + layer.num_parameters);
    }
  }
  EXPECT_EQ(next, plan.placements().size());
  EXPECT_THAT(paths,
              ElementsAre("model.embed_tokens", "model.layers.0.input_layernorm", "model.layers.0.self_attn.qkv_proj",
                          "model.layers.0.self_attn.o_proj", "model.layers.0.mlp.gate_up_proj",
                          "model.layers.0.mlp.down_proj", "model.layers.1.input_layernorm",
                          "model.layers.1.self_attn.qkv_proj", "model.layers.1.self_attn.o_proj",
                          "model.layers.1.mlp.gate_up_proj", "model.layers.1.mlp.down_proj", "model.norm", "lm_head"));

  const PlannedLayer& qkv = plan.layers()[2];
  EXPECT_EQ(qkv.class_name, "QKVParallelLinear");
  ASSERT_EQ(qkv.num_placements, 6U);
  const Placement& key = plan.placements()[qkv.first_placement + 1];
  EXPECT_EQ(manifest.entry(key.tensor).spec.name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(plan.parameters()[key.parameter].spec.name, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(plan.parameters()[key.parameter].spec.shape, (Shape{24, 16}));
  EXPECT_EQ(key.shard_id, "k");
  EXPECT_EQ(key.source, Box::Slice({8, 16}, 0, 4, 4));
  EXPECT_EQ(key.destination, Box::Slice({24, 16}, 0, 16, 4));
  EXPECT_EQ(plan.layout_digest(), manifest.layout_digest());
}

TEST(LoadPlan, FindsThePlacementsOfATensor) {
  const TinyOptions options{.tp_rank = 0, .tp_size = 2};
  const auto model = TinyModel(options);
  const Manifest manifest = ManifestOf(TinySpecs(options));
  const LoadPlan plan = LoadPlan::Build(*model, manifest);
  std::vector<bool> seen(plan.placements().size());
  for (std::uint32_t tensor = 0; tensor < manifest.size(); ++tensor) {
    for (const std::uint32_t placement : plan.PlacementsOf(tensor)) {
      EXPECT_EQ(plan.placements()[placement].tensor, tensor);
      seen[placement] = true;
    }
  }
  EXPECT_THAT(seen, Not(::testing::Contains(false)));
}

TEST(LoadPlan, CountsTheBytesThatARankKeeps) {
  std::uint64_t kept = 0;
  std::uint64_t total = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const TinyOptions options{.tp_rank = rank, .tp_size = 2};
    const Manifest manifest = ManifestOf(TinySpecs(options));
    kept += LoadPlan::Build(*TinyModel(options), manifest).placed_bytes();
    total = manifest.total_bytes();
  }
  EXPECT_EQ(kept, total + 2 * 16 * 4);  // both ranks keep the two norms
}

TEST(LoadPlan, SkipsByRuleAndSaysWhich) {
  std::vector<TensorSpec> specs = TinySpecs({});
  specs.insert(specs.begin(), {"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {2}});
  const LoadPlan plan = LoadPlan::Build(*TinyModel({}), ManifestOf(specs));
  ASSERT_EQ(plan.skipped().size(), 1U);
  EXPECT_EQ(plan.skipped()[0].tensor, 0U);
  EXPECT_EQ(plan.skipped()[0].rule, "rotary_emb.inv_freq is computed, not loaded");
  specs[0].name = "model.layers.0.self_attn.my_rotary_emb.inv_freq";  // not whole segments
  EXPECT_EQ(ProblemsOf(specs).unexpected.size(), 1U);
}

TEST(LoadPlan, TakesATiedHeadForAnAliasOfItsOwner) {
  const TinyOptions options{.tied = true};
  std::vector<TensorSpec> specs = TinySpecs(options);
  specs.insert(specs.begin(), {"lm_head.weight", DType::kF32, {100, 16}});
  const LoadPlan plan = LoadPlan::Build(*TinyModel(options), ManifestOf(specs));
  ASSERT_EQ(plan.aliases().size(), 1U);
  EXPECT_EQ(plan.aliases()[0].tensor, 0U);
  EXPECT_EQ(plan.aliases()[0].owner, 1U);
  EXPECT_THAT(plan.PlacementsOf(0), IsEmpty());
  EXPECT_EQ(plan.layers().back().path, "model.norm");  // the tied head is no layer
}

TEST(LoadPlan, TakesATiedHeadForAnAliasOfAnOwnerOfAnotherName) {
  const TinyOptions options{.tied = true};
  std::vector<TensorSpec> specs = TinySpecs(options);
  specs.insert(specs.begin(), {"lm_head.weight", DType::kF32, {100, 16}});
  for (TensorSpec& spec : specs) spec.name = "policy." + spec.name;
  const auto model = TinyModel(options);
  model->SetMapper(WeightsMapper({NameRule::Prefix("policy", "")}));
  const LoadPlan plan = LoadPlan::Build(*model, ManifestOf(specs));
  ASSERT_EQ(plan.aliases().size(), 1U);
  EXPECT_EQ(plan.aliases()[0].tensor, 0U);
  EXPECT_EQ(plan.aliases()[0].owner, 1U);
  EXPECT_THAT(plan.PlacementsOf(0), IsEmpty());
}

TEST(LoadPlan, LoadsATiedHeadAsTheEmbeddingThatIsNotThere) {
  const TinyOptions options{.tied = true};
  std::vector<TensorSpec> specs = TinySpecs(options);
  Find(specs, "model.embed_tokens.weight").name = "lm_head.weight";
  const LoadPlan plan = LoadPlan::Build(*TinyModel(options), ManifestOf(specs));
  EXPECT_THAT(plan.aliases(), IsEmpty());
  ASSERT_EQ(plan.PlacementsOf(0).size(), 1U);
  const Placement& placement = plan.placements()[plan.PlacementsOf(0)[0]];
  EXPECT_EQ(plan.parameters()[placement.parameter].spec.name, "model.embed_tokens.weight");
}

TEST(LoadPlan, RefusesATiedHeadOfAnotherShapeOrDtype) {
  const TinyOptions options{.tied = true};
  std::vector<TensorSpec> specs = TinySpecs(options);
  specs.push_back({"lm_head.weight", DType::kF32, {101, 16}});
  EXPECT_THAT(ProblemsOf(specs, options).misfits, ElementsAre("layer model.embed_tokens: 'lm_head.weight' expected "
                                                              "[100, 16] f32, got [101, 16] f32"));
  specs.back() = {"lm_head.weight", DType::kBF16, {100, 16}};
  EXPECT_THAT(ProblemsOf(specs, options).misfits,
              ElementsAre("'lm_head.weight' is tied to 'model.embed_tokens.weight': expected [100, 16] f32, got "
                          "[100, 16] bf16"));
}

TEST(LoadPlan, RecordsTensorsThatAreCast) {
  std::vector<TensorSpec> specs = TinySpecs({});
  Find(specs, "model.norm.weight").dtype = DType::kBF16;
  const Manifest manifest = ManifestOf(specs);
  const LoadPlan plan = LoadPlan::Build(*TinyModel({}), manifest);
  EXPECT_THAT(plan.cast_tensors(), ElementsAre(manifest.Find("model.norm.weight")));
}

TEST(LoadPlan, AcceptsTensorsThatAreFusedOnDisk) {
  const TinyOptions options{.tp_rank = 1, .tp_size = 2};
  std::vector<TensorSpec> specs = TinySpecs(options);
  for (const char* shard : {"q", "k", "v"}) {
    Remove(specs, "model.layers.0.self_attn." + std::string(shard) + "_proj.weight");
  }
  Remove(specs, "model.layers.0.mlp.gate_proj.weight");
  Remove(specs, "model.layers.0.mlp.up_proj.weight");
  specs.push_back({"model.layers.0.self_attn.qkv_proj.weight", DType::kF32, {48, 16}});
  specs.push_back({"model.layers.0.mlp.gate_up_proj.weight", DType::kF32, {48, 16}});
  EXPECT_TRUE(ProblemsOf(specs, options).empty());
}

TEST(LoadPlan, NamesMissingTensorsAsCheckpointsCallThem) {
  std::vector<TensorSpec> specs = TinySpecs({});
  Remove(specs, "model.layers.0.self_attn.k_proj.weight");
  Remove(specs, "model.layers.0.mlp.down_proj.weight");
  Remove(specs, "model.norm.weight");
  EXPECT_THAT(ProblemsOf(specs).missing,
              UnorderedElementsAre("model.layers.0.self_attn.k_proj.weight", "model.layers.0.mlp.down_proj.weight",
                                   "model.norm.weight"));
}

TEST(LoadPlan, NoticesAMissingEmbeddingOnARankThatHoldsPaddingAlone) {
  // 100 rows are padded to 128; with 8 ranks of 16 rows the last one holds none of them.
  auto root = std::make_unique<Tree>();
  const LayerContext context{{7, 8}, DType::kF32, true};
  root->Add("embed_tokens", std::make_unique<VocabParallelEmbedding>(context, 100, 4));
  root->Add("norm", std::make_unique<RMSNorm>(context, 4));
  const TensorSpec norm{"norm.weight", DType::kF32, {4}};
  EXPECT_THAT(LoadPlan::Check(*root, ManifestOf({norm})).problems.missing, ElementsAre("embed_tokens.weight"));
  const TensorSpec embedding{"embed_tokens.weight", DType::kF32, {100, 4}};
  const LoadPlan plan = LoadPlan::Build(*root, ManifestOf({norm, embedding}));
  EXPECT_THAT(plan.PlacementsOf(1), IsEmpty());
}

TEST(LoadPlan, RefusesToReorderElementsThatShareBytes) {
  const auto refusal = [](DType dtype) {
    Tree root;
    root.Add("norm", std::make_unique<RMSNorm>(LayerContext{{0, 1}, dtype, true}, 8));
    root.Add("gate", std::make_unique<ReplicatedLinear>(LayerContext{{0, 1}, dtype, true}, 8, 4, false));
    root.SetTransforms(SourceTransforms({SourceTransform::Transpose(NameRule::Match::kSuffix, "gate.weight")}));
    return LoadPlan::Check(root, ManifestOf({{"norm.weight", dtype, {8}}, {"gate.weight", dtype, {8, 4}}}))
        .problems.misfits;
  };
  EXPECT_THAT(refusal(DType::kF64), IsEmpty());
  EXPECT_THAT(refusal(DType::kF4), ElementsAre("layer gate: 'gate.weight' expected whole, in the order of its "
                                               "elements, because f4 elements share bytes; got another order of them"));
}

TEST(LoadPlan, RefusesARepeatedShardThatCountingWouldAccept) {
  // q, k and a second k in place of v: as many elements as there should be.
  auto root = std::make_unique<Tree>();
  const LayerContext context{{0, 1}, DType::kF32, true};
  class Twice final : public Module {
   public:
    explicit Twice(const LayerContext& c) : Module("Twice"), inner_(c, 4, AttentionHeads{1, 1, 4, 0}, false) {
      AddParameter({{"weight", c.dtype, {12, 4}}, ShardAxis::kRows, false, {}});
    }
    std::vector<PlacedPiece> Place(std::string_view name, std::string_view, const TensorSpec& spec) const override {
      return inner_.Place("weight", name == "first" ? "q" : "k", spec);
    }

   private:
    QKVParallelLinear inner_;
  };
  root->Add("layer", std::make_unique<Twice>(context));
  const Manifest manifest = ManifestOf({{"layer.first", DType::kF32, {4, 4}},
                                        {"layer.second", DType::kF32, {4, 4}},
                                        {"layer.third", DType::kF32, {4, 4}}});
  EXPECT_THAT(LoadPlan::Check(*root, manifest).problems.repeated,
              ElementsAre("'layer.second' and 'layer.third' both fill the same elements of 'layer.weight'"));
}

TEST(LoadPlan, RefusesAPartBesideTheWholeItIsFusedIn) {
  std::vector<TensorSpec> specs = TinySpecs({});
  specs.push_back({"model.layers.0.mlp.gate_up_proj.weight", DType::kF32, {48, 16}});
  const PlanProblems problems = ProblemsOf(specs);
  EXPECT_EQ(problems.repeated.size(), 2U);
  EXPECT_THAT(problems.missing, IsEmpty());
  EXPECT_THAT(problems.repeated[0], AllOf(HasSubstr("'model.layers.0.mlp.gate_up_proj.weight'"),
                                          HasSubstr("'model.layers.0.mlp.gate_proj.weight'")));
}

TEST(LoadPlan, RefusesATensorThatNoLayerWants) {
  std::vector<TensorSpec> specs = TinySpecs({});
  specs.push_back({"model.layers.0.self_attn.o_proj.bias", DType::kF32, {16}});
  specs.push_back({"model.layers.1.mlp.up_proj.weight", DType::kF32, {24, 16}});
  specs.push_back({"model.norm.weight.extra", DType::kF32, {16}});
  const PlanProblems problems = ProblemsOf(specs);
  const auto unexpected = [](const std::string& name, const auto& why) {
    return AllOf(Field(&PlanProblems::Unexpected::name, name), Field(&PlanProblems::Unexpected::why, why));
  };
  EXPECT_THAT(
      problems.unexpected,
      ElementsAre(
          unexpected("model.layers.0.self_attn.o_proj.bias",
                     "There is no module or parameter named 'model.layers.0.self_attn.o_proj.bias' in TinyForCausalLM. "
                     "The available parameters belonging to model.layers.0.self_attn.o_proj (RowParallelLinear) are: "
                     "{weight}"),
          unexpected("model.layers.1.mlp.up_proj.weight",
                     HasSubstr("There is no module or parameter named 'model.layers.1.mlp.up_proj.weight'")),
          unexpected("model.norm.weight.extra",
                     "Attempted to load nested weight 'model.norm.weight.extra' into a single parameter "
                     "'model.norm.weight'")));
}

TEST(LoadPlan, CollectsEverythingThatIsWrongIntoOneError) {
  std::vector<TensorSpec> specs = TinySpecs({});
  Remove(specs, "model.norm.weight");
  Find(specs, "model.layers.0.mlp.up_proj.weight").shape = {24, 8};
  specs.push_back({"model.extra", DType::kF32, {16}});
  specs.push_back({"model.layers.0.self_attn.qkv_proj.bias", DType::kF32, {48}});
  EXPECT_THAT(ErrorOf([&] { (void)LoadPlan::Build(*TinyModel({}), ManifestOf(specs)); }),
              AllOf(HasSubstr("load plan of TinyForCausalLM"),
                    HasSubstr("1 missing. Following weights were not initialized from checkpoint: model.norm.weight"),
                    HasSubstr("3 repeated"), HasSubstr("1 unexpected"), HasSubstr("1 that do not fit"),
                    HasSubstr("layer model.layers.0.mlp.gate_up_proj: 'model.layers.0.mlp.up_proj.weight' expected "
                              "[24, 16] f32, got [24, 8] f32")));
}

TEST(LoadPlan, CapsWhatItListsAndSaysHowMuchMore) {
  std::vector<TensorSpec> specs = TinySpecs({.layers = 30});
  for (TensorSpec& spec : specs) {
    if (spec.name.ends_with("layernorm.weight")) spec.shape = {17};
  }
  const std::string error = ErrorOf([&] { (void)LoadPlan::Build(*TinyModel({.layers = 30}), ManifestOf(specs)); });
  EXPECT_THAT(error, AllOf(Not(HasSubstr("missing")), HasSubstr("30 that do not fit"), HasSubstr("and 25 more")));
}

// One line for each kind, however many tensors a model has; the structured form is whole.
TEST(LoadPlan, RefusesAWrongModelInAFewLines) {
  std::vector<TensorSpec> specs = TinySpecs({});
  for (TensorSpec& spec : specs) {
    if (spec.name.starts_with("model.layers.")) spec.name = "h." + spec.name;
  }
  EXPECT_THAT(ErrorOf([&] { (void)LoadPlan::Build(*TinyModel({}), ManifestOf(specs)); }),
              ::testing::MatchesRegex("load plan of TinyForCausalLM: the manifest does not fit:\n"
                                      "  11 missing. Following weights were not initialized from checkpoint: "
                                      "([^ ]+, ){4}[^ ]+ and 6 more\n"
                                      "  11 unexpected: ('h.[^ ]+', ){4}'h.[^ ]+' and 6 more\n"
                                      "  `layercast plan --model DIR`, or with `--publisher EP`, lists every one and "
                                      "why"));
  EXPECT_THAT(ProblemsOf(specs).Lines(), SizeIs(22));
}

TEST(LoadPlan, OfAPartialVersionKeepsLayersThatNoTensorIsOf) {
  std::vector<TensorSpec> specs = TinySpecs({});
  Remove(specs, "model.norm.weight");
  EXPECT_FALSE(ProblemsOf(specs).empty());
  EXPECT_TRUE(ProblemsOf(specs, {}, true).empty());
  const auto model = TinyModel({});
  const CheckedPlan checked = LoadPlan::Check(*model, ManifestOf(specs), true);
  for (const PlannedLayer& layer : checked.plan.layers())
    EXPECT_EQ(layer.kept, layer.path == "model.norm") << layer.path;
  // A part of a fused one is still too little.
  Remove(specs, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_THAT(ProblemsOf(specs, {}, true).missing, ElementsAre("model.layers.0.self_attn.k_proj.weight"));
  EXPECT_THAT(ProblemsOf({{"model.nrom.weight", DType::kBF16, {16}}}, {}, true).unexpected, SizeIs(1));
}

TEST(LoadPlan, RefusesAManifestWithoutTensors) {
  EXPECT_THAT(ErrorOf([] { (void)LoadPlan::Build(*TinyModel({}), Manifest()); }),
              HasSubstr("the manifest holds no tensors"));
}

}  // namespace
}  // namespace layercast
