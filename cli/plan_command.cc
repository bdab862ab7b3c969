// layercast plan: where every tensor of a checkpoint, or of a publisher's newest version, goes on one rank of an
// engine, what is skipped, and what would not fit.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/adapter_plan.h"
#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/subcommand.h"
#include "cli/terminal/wrapped.h"
#include "engine_side/model/registry/named_draft.h"
#include "engine_side/plan/kept_layers.h"
#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "engine_side/reload/prequantized/quantized_checkpoint.h"
#include "engine_side/reload/sources/config_check.h"
#include "layercast/model/config.h"
#include "layercast/model/weight_rules.h"
#include "layercast/model_description.h"
#include "src/base/failpoint.h"
#include "src/base/utf8.h"
#include "src/checkpoint/formats/checkpoint.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/fetch/fetch.h"

namespace layercast::cli {
namespace {

// Reads the headers alone, because a plan needs only names, dtypes and shapes. Afterwards `tree` is in the form that
// takes them.
MergedVersion OfCheckpoint(const CheckpointSource& source, Module& tree, const QuantizationConfig& quantization) {
  WorkerPool pool(1);
  HostMemory memory;
  const QuantizedCheckpoint checkpoint(Checkpoint::Open(source), tree, quantization, memory, pool);
  return {Manifest::OfSpecs({}, 0, checkpoint.specs()), {}};
}

// `changes` gets what the publishers' configurations differ in from the tree's.
MergedVersion OfPublishers(const std::vector<std::string>& endpoints, const ParallelConfig& parallel, const Keys& keys,
                           Deadline deadline, Module& tree, const QuantizationConfig& quantization,
                           std::vector<std::string>& changes) {
  ChannelChooser channels(AllTransports(std::nullopt, keys));
  FetchOptions options;
  options.keys = keys;
  options.channels = &channels;
  FailPoints none;
  const ReceiverIdentity self{"layercast plan", 0, parallel.engine_rank(), parallel.engine_size()};
  const auto session = FetchSession::Open(endpoints, self, {}, {}, options, none, deadline);
  MergedVersion merged = Merge(session->manifests(), session->endpoints());
  std::vector<SourceConfig> configs;
  for (std::string& text : session->configs()) {
    configs.push_back({"publisher " + session->endpoints()[configs.size()], std::move(text)});
  }
  changes = ConfigChanges(tree.config().get(), configs);
  TakeQuantizedLayersAsTheyCome(tree, merged.manifest, quantization);
  return merged;
}

// What is wrong with the plan's weights for a recipe.
std::vector<std::string> RecipeProblems(const LoadPlan& plan, const std::string& name) {
  const LayerRecipes recipes(name);
  std::vector<std::string> problems;
  for (const PlannedParameter& parameter : plan.parameters()) {
    if (!parameter.quantize) continue;
    try {
      (void)KernelTensorsOf(parameter, recipes);
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  }
  return problems;
}

Json RangesOf(const Box& box) {
  Json ranges = Json::array();
  for (std::size_t axis = 0; axis < box.rank; ++axis) {
    ranges.push_back({box.begin[axis], box.begin[axis] + box.extent[axis]});
  }
  return ranges;
}

// "[0:32, 0:128]"
std::string TextOf(const Box& box) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < box.rank; ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(box.begin[axis]) + ":" +
            std::to_string(box.begin[axis] + box.extent[axis]);
  }
  return text + "]";
}

// Gathers a plan's facts, as JSON and as text.
class PlanReport {
 public:
  PlanReport(const LoadPlan& plan, const Manifest& manifest, const ParallelConfig& parallel, const Module& tree)
      : manifest_(manifest), tree_(tree) {
    json_ = {{"tp", parallel.tp_size},
             {"rank", parallel.tp_rank},
             {"pp", parallel.pp_size},
             {"stage", parallel.pp_rank},
             {"placements", Json::array()},
             {"skipped", Json::array()},
             {"elsewhere", Json::array()},
             {"cast", Json::array()},
             {"derived", Json::array()},
             {"bytes", plan.placed_bytes()},
             {"problems", Json::array()},
             {"unused_rules", plan.unused_rules()},
             {"kept", Condensed(KeptLayers(plan))}};
    for (const Placement& placement : plan.placements()) AddPlacement(plan, placement);
    for (const SkippedTensor& skipped : plan.skipped()) AddSkipped(skipped.tensor, skipped.rule);
    for (const AliasedTensor& alias : plan.aliases()) {
      AddSkipped(alias.tensor, "tied to " + manifest.entry(alias.owner).spec.name);
    }
    for (const ElsewhereTensor& tensor : plan.elsewhere()) AddElsewhere(tensor);
    for (const std::uint32_t tensor : plan.cast_tensors()) AddCast(plan, tensor);
    for (const PlannedLayer& layer : plan.layers()) {
      for (const DerivedTensor& derived : layer.derived) AddDerived(layer, derived);
    }
    for (const Json& layers : json_["kept"]) AddLine("kept: " + layers.get<std::string>());
    for (const std::string& rule : plan.unused_rules()) {
      AddLine("warning: weight rule '" + rule + "' touches no tensor");
    }
    text_ += std::to_string(plan.placements().size()) + " placements in " + std::to_string(plan.layers().size()) +
             " layers, " + std::to_string(plan.placed_bytes()) + " of " + std::to_string(manifest.total_bytes()) +
             " bytes on rank " + std::to_string(parallel.tp_rank) + " of " + std::to_string(parallel.tp_size);
    if (parallel.pp_size > 1) {
      text_ += ", stage " + std::to_string(parallel.pp_rank) + " of " + std::to_string(parallel.pp_size);
    }
    text_ += '\n';
  }

  Json& json() { return json_; }
  const std::string& text() const { return text_; }

 private:
  // Names in it may hold anything, line breaks too.
  void AddLine(const std::string& line) { text_ += Escaped(line) + "\n"; }

  void AddPlacement(const LoadPlan& plan, const Placement& placement) {
    const TensorSpec& tensor = manifest_.entry(placement.tensor).spec;
    const PlannedParameter& parameter = plan.parameters()[placement.parameter];
    const PlannedLayer& layer = plan.layers()[parameter.layer];
    const std::string name = parameter.spec.name.substr(layer.path.empty() ? 0 : layer.path.size() + 1);
    const std::vector<std::string> rules = RulesOf(tensor);
    const Shape& read_as = plan.SourceShape(manifest_, placement.tensor);
    json_["placements"].push_back({{"tensor", tensor.name},
                                   {"dtype", Name(tensor.dtype)},
                                   {"shape", tensor.shape},
                                   {"read_as", read_as},
                                   {"source", RangesOf(placement.source)},
                                   {"layer", layer.path},
                                   {"class", layer.class_name},
                                   {"parameter", name},
                                   {"destination", RangesOf(placement.destination)},
                                   {"shard", placement.shard_id},
                                   {"transposed", placement.order.transposed},
                                   {"interleaved", placement.order.interleaved},
                                   {"rules", rules}});
    std::string line = tensor.name + (read_as == tensor.shape ? "" : " read as " + ToString(read_as)) + " " +
                       TextOf(placement.source) + " -> " + parameter.spec.name + " " + TextOf(placement.destination) +
                       "  " + layer.class_name;
    if (!placement.shard_id.empty()) line += " shard " + std::string(placement.shard_id);
    if (placement.order.transposed) line += " transposed";
    if (placement.order.interleaved) line += " interleaved";
    for (const std::string& rule : rules) line += "  by " + rule;
    AddLine(line);
  }

  // The transforms by which the tensor is read, and the rules that map its name to the tree's, in order.
  std::vector<std::string> RulesOf(const TensorSpec& tensor) const {
    std::vector<std::string> rules = tree_.transforms().Describe(tensor.name);
    for (const SourceView& part : tree_.transforms().Apply(tensor)) {
      const WeightsMapper& mapper = tree_.mapper();
      for (const std::uint32_t rule : mapper.Map(part.spec.name).applied) {
        rules.push_back(mapper.rules()[rule].Describe());
      }
    }
    return rules;
  }

  void AddSkipped(std::uint32_t tensor, const std::string& rule) {
    const TensorSpec& spec = manifest_.entry(tensor).spec;
    json_["skipped"].push_back({{"name", spec.name}, {"rule", rule}, {"rules", RulesOf(spec)}});
    AddLine("skipped: " + spec.name + ": " + rule);
  }

  void AddElsewhere(const ElsewhereTensor& elsewhere) {
    const std::string& name = manifest_.entry(elsewhere.tensor).spec.name;
    json_["elsewhere"].push_back({{"name", name}, {"held_by", elsewhere.held_by}});
    AddLine("elsewhere: " + name + ": " + std::string(elsewhere.held_by));
  }

  void AddCast(const LoadPlan& plan, std::uint32_t tensor) {
    const std::span<const std::uint32_t> placements = plan.PlacementsOf(tensor);
    if (placements.empty()) return;  // this rank holds nothing of it
    const TensorSpec& spec = manifest_.entry(tensor).spec;
    const DType to = plan.parameters()[plan.placements()[placements.front()].parameter].spec.dtype;
    json_["cast"].push_back({{"name", spec.name}, {"from", Name(spec.dtype)}, {"to", Name(to)}});
    AddLine("cast: " + spec.name + ": " + std::string(Name(spec.dtype)) + " to " + std::string(Name(to)));
  }

  void AddDerived(const PlannedLayer& layer, const DerivedTensor& derived) {
    const std::string name = layer.path + "." + derived.spec.name;
    Json sources = Json::array();
    std::string line = "derived: " + name + " " + Describe(derived.spec) + " from";
    for (const TensorSpec& source : derived.sources) {
      sources.push_back(source.name);
      line += " " + source.name;
    }
    AddLine(line);
    json_["derived"].push_back(
        {{"name", name}, {"dtype", Name(derived.spec.dtype)}, {"shape", derived.spec.shape}, {"from", sources}});
  }

  const Manifest& manifest_;
  const Module& tree_;
  Json json_;
  std::string text_;
};

class Plan final : public Subcommand {
 public:
  const char* name() const override { return "plan"; }
  const char* description() const override {
    return "Tells where every tensor goes on one rank, what is skipped, and what would not fit";
  }

  void Declare(CLI::App& app) override {
    checkpoint_.Declare(app, "The checkpoint's folder, or with --publisher one of config.json alone");
    app.add_option("--draft", draft_,
                   "Also plans for a draft model, as `serve` has it: `mtp`, or the folder of an EAGLE one");
    app.add_option("--tp", parallel_.tp_size, "Ranks of the engine")->check(CLI::Range(1, 65536));
    app.add_option("--rank", parallel_.tp_rank, "The rank to plan for, from 0")->check(WholeNumber(0));
    DeclareExperts(app, expert_parallel_, parallel_.expert_placement);
    app.add_option("--pp", parallel_.pp_size, "Pipeline stages of the engine")->check(CLI::Range(1, 65536));
    app.add_option("--stage", parallel_.pp_rank, "The stage to plan for, from 0")->check(WholeNumber(0));
    DeclareStageLayers(app, parallel_.pp_layer_partition);
    app.add_flag("--partial", partial_, "Takes a part of the model");
    DeclareList(app, "--may-keep", may_keep_,
                "With --partial: paths of layers, or of modules above them, that alone may be left out")
        ->needs("--partial");
    app.add_option("--quantization", quantization_.recipe, "Also says which weights this recipe cannot hold")
        ->check(OneOf(LayerRecipes::KnownNames()));
    app.add_flag("--requantize", quantization_.requantize, "Requantizes as `serve` would with the folder's checkpoint");
    DeclareScales(app, scales_);
    DeclareWeightRules(app, weight_rules_);
    CLI::Option* const publisher =
        DeclareList(app, "--publisher", publishers_, "Plans for its newest version instead of the folder's checkpoint")
            ->check(EachOf(Endpoint()));
    app.add_option("--adapter", adapter_, "Plans a LoRA adapter instead, a folder of PEFT: where it goes in a slot")
        ->excludes(publisher);
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    if (parallel_.tp_rank >= parallel_.tp_size) {
      throw UsageError("--rank " + std::to_string(parallel_.tp_rank) + " is not below --tp " +
                       std::to_string(parallel_.tp_size));
    }
    if (parallel_.pp_rank >= parallel_.pp_size) {
      throw UsageError("--stage " + std::to_string(parallel_.pp_rank) + " is not below --pp " +
                       std::to_string(parallel_.pp_size));
    }
    if (expert_parallel_) parallel_.SpreadExperts(parallel_.expert_placement);
    const Deadline deadline = timeout_.deadline();
    const std::string draft = AbsoluteDraft(draft_);
    const auto tree =
        BuildWithNamedDraft(ModelDescription::FromDirectory(checkpoint_.path()), parallel_, NamedDraft::Read(draft));
    HoldScales(*tree, scales_);
    if (!weight_rules_.empty()) WeightRules::FromFile(weight_rules_).ApplyTo(*tree);
    if (!adapter_.empty()) return RunOfAdapter(output, *tree);
    std::vector<std::string> config_changes;
    const auto [manifest, parts] =
        publishers_.empty()
            ? OfCheckpoint(WithNamedDraft(checkpoint_.Source(), draft), *tree, quantization_)
            : OfPublishers(publishers_, parallel_, keys_.keys(), deadline, *tree, quantization_, config_changes);
    const CheckedPlan checked = LoadPlan::Check(*tree, manifest, partial_, parts);
    std::vector<std::string> problems = checked.problems.Lines();
    for (const std::string& layers : Condensed(KeptBeyond(checked.plan, may_keep_))) {
      problems.push_back("missing: all of " + layers + ", which may not be kept");
    }
    std::ranges::copy(RecipeProblems(checked.plan, quantization_.recipe), std::back_inserter(problems));

    std::ranges::copy(config_changes, std::back_inserter(problems));

    PlanReport report(checked.plan, manifest, parallel_, *tree);
    report.json()["config_changes"] = config_changes;
    report.json()["problems"] = problems;
    if (problems.empty()) return output.Print(report.json(), Wrapped(report.text()));
    output.PrintAndThrow(report.json(), Wrapped(report.text()), ErrorCode::kInvalidArgument, problems);
  }

 private:
  void RunOfAdapter(Output& output, const Module& base) const {
    const AdapterPlan adapter = PlanAdapter(adapter_, base);
    const CheckedPlan checked = LoadPlan::Check(*adapter.tree, adapter.manifest);
    PlanReport report(checked.plan, adapter.manifest, parallel_, *adapter.tree);
    report.json()["modules"] = adapter.modules;
    report.json()["problems"] = adapter.problems;
    if (adapter.problems.empty()) return output.Print(report.json(), Wrapped(report.text()));
    output.PrintAndThrow(report.json(), Wrapped(report.text()), ErrorCode::kInvalidArgument, adapter.problems);
  }

  std::string draft_;
  std::string adapter_;
  CheckpointFlags checkpoint_;
  ParallelConfig parallel_;
  bool expert_parallel_ = false;
  bool partial_ = false;
  std::vector<std::string> may_keep_;
  QuantizationConfig quantization_;
  HeldScales scales_;
  std::string weight_rules_;
  std::vector<std::string> publishers_;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakePlan() { return std::make_unique<Plan>(); }

}  // namespace layercast::cli
