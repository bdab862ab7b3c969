#include "layercast/model/registry.h"

#include <algorithm>
#include <utility>

#include "engine_side/model/config/checkpoint_quantization.h"
#include "engine_side/model/registry/builtin_families.h"
#include "engine_side/model/registry/served_config.h"
#include "layercast/error.h"
#include "layercast/model/decoder.h"
#include "layercast/model/pipeline_stages.h"
#include "src/base/naming_source.h"

namespace layercast {
namespace {

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// "{DeepseekV2, Llama}ForCausalLM, Mine": architectures that end alike share their ending, so that many are few words.
std::string Shortened(const std::vector<std::string>& architectures) {
  std::map<std::string, std::vector<std::string>> by_ending;
  for (const std::string& name : architectures) {
    const std::size_t ending = std::min(name.rfind("For"), name.size());
    by_ending[name.substr(ending)].push_back(name.substr(0, ending));
  }
  std::vector<std::string> groups;
  for (const auto& [ending, stems] : by_ending) {
    groups.push_back(stems.size() == 1 ? stems.front() + ending : "{" + Joined(stems) + "}" + ending);
  }
  return Joined(groups);
}

void AddDraftTo(std::map<std::string, DraftFactory>& drafts, std::string architecture, DraftFactory factory) {
  const auto [entry, added] = drafts.try_emplace(std::move(architecture), std::move(factory));
  if (!added) throw Error(ErrorCode::kInvalidArgument, "Draft model " + entry->first + " already registered");
}

const DraftFactory& DraftOf(const std::map<std::string, DraftFactory>& drafts,
                            const std::vector<std::string>& architectures) {
  std::vector<std::string> known;
  for (const auto& [name, factory] : drafts) {
    if (std::ranges::count(architectures, name) != 0) return factory;
    known.push_back(name);
  }
  throw Error(ErrorCode::kUnsupported,
              "no draft model is known for [" + Joined(architectures) + "], expected one of " + Joined(known));
}

// Maps the names that transformers' AutoModel saves, which are the inner model's alone, without "model." before them.
WeightsMapper InnerNames(const Module& root) {
  std::vector<NameRule> rules;
  for (const auto& [name, child] : root.children()) {
    if (name != "model") continue;
    for (const auto& [inner, module] : child->children()) rules.push_back(NameRule::Prefix(inner, "model." + inner));
  }
  return WeightsMapper(std::move(rules));
}

}  // namespace

ModelRegistry ModelRegistry::Builtin() {
  ModelRegistry registry;
  for (const BuiltinFamily& family : BuiltinFamilies()) {
    const std::string architecture(family.architecture);
    registry.Register(architecture, family.build, std::string(family.limits));
    if (family.draft_layers != nullptr) registry.RegisterDraftLayers(architecture, family.draft_layers);
  }
  for (const BuiltinDraftModel& draft : BuiltinDraftModels()) {
    registry.RegisterDraftModel(std::string(draft.architecture), draft.build);
  }
  return registry;
}

void ModelRegistry::Register(std::string architecture, ModelFactory factory, std::string limits) {
  const auto [entry, added] =
      families_.try_emplace(std::move(architecture), Family{std::move(factory), std::move(limits)});
  if (!added) {
    throw Error(ErrorCode::kInvalidArgument, "Model architecture " + entry->first + " already registered");
  }
}

void ModelRegistry::RegisterDraftLayers(std::string architecture, DraftFactory factory) {
  AddDraftTo(draft_layers_, std::move(architecture), std::move(factory));
}

void ModelRegistry::RegisterDraftModel(std::string architecture, DraftFactory factory) {
  AddDraftTo(draft_models_, std::move(architecture), std::move(factory));
}

std::vector<std::string> ModelRegistry::architectures() const {
  std::vector<std::string> names;
  for (const auto& [name, family] : families_) names.push_back(name);
  return names;
}

const std::string& ModelRegistry::limits(const std::string& architecture) const {
  return families_.at(architecture).limits;
}

const std::pair<const std::string, ModelRegistry::Family>& ModelRegistry::FamilyOf(
    const std::vector<std::string>& names) const {
  if (names.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "No model architectures are specified: config.json has no `architectures`");
  }
  for (const std::string& name : names) {
    if (const auto found = families_.find(name); found != families_.end()) return *found;
  }
  throw Error(ErrorCode::kUnsupported,
              "Model architectures [" + Joined(names) +
                  "] are not supported for now. Supported architectures: " + Shortened(architectures()) +
                  ". A host program describes one of its own in one call, ModelRegistry::Register (docs/models.md)");
}

ModelConfig ModelRegistry::ConfigOf(const ModelDescription& description) const {
  const std::vector<std::string> names = ModelConfig::ArchitecturesOf(description);
  NamingSource(description.directory().string(), [&] { (void)FamilyOf(names); });
  return ModelConfig::Parse(description);
}

ModelConfig ModelRegistry::DraftConfigOf(const ModelDescription& draft) const {
  const std::vector<std::string> names = ModelConfig::ArchitecturesOf(draft);
  NamingSource(draft.directory().string(), [&] { (void)DraftOf(draft_models_, names); });
  return ModelConfig::Parse(draft);
}

std::unique_ptr<Module> ModelRegistry::Build(const ModelConfig& config, const ParallelConfig& parallel,
                                             const WeightsMapper& names) const {
  const auto& [name, family] = FamilyOf(config.architectures);
  std::unique_ptr<Module> model = family.build(config, parallel, config.dtype);
  if (model == nullptr) throw Error(ErrorCode::kInvalidArgument, "the factory of '" + name + "' gave no module tree");
  model->SetMapper(names | InnerNames(*model) | model->mapper());
  CheckpointQuantization::Parse(config.json).ApplyTo(*model);
  model->SetParallel(parallel);
  model->SetHeads({config.num_attention_heads, config.num_key_value_heads});
  if (!config.on_field) model->SetConfig(std::make_shared<const ServedConfig>(*this, config));
  return model;
}

std::unique_ptr<Module> ModelRegistry::BuildWithDraft(const ModelConfig& target,
                                                      const std::optional<ModelConfig>& draft,
                                                      const ParallelConfig& parallel,
                                                      const WeightsMapper& names) const {
  const auto& [architecture, family] = FamilyOf(target.architectures);
  ParallelConfig beside_draft = parallel;
  beside_draft.pp_embeds_on_last = true;
  std::unique_ptr<Module> model = family.build(target, beside_draft, target.dtype);
  auto* decoder = dynamic_cast<DecoderForCausalLM*>(model.get());
  if (decoder == nullptr) {
    throw Error(ErrorCode::kUnsupported, architecture + " is no decoder that a draft model could speculate for");
  }
  DraftModel beside = draft ? DraftOf(draft_models_, draft->architectures)(target, *draft, parallel, target.dtype)
                            : DraftOf(draft_layers_, {architecture})(target, target, parallel, target.dtype);
  const PipelineStages stages(parallel, target.num_hidden_layers);
  if (!stages.is_last()) beside.tree = std::make_unique<PPMissingLayer>(StageName(stages.last()));
  decoder->AddDraft(std::move(beside.tree));
  model->SetMapper(names | beside.names | InnerNames(*model) | model->mapper());
  CheckpointQuantization::Parse(target.json).ApplyTo(*model);
  model->SetParallel(parallel);
  model->SetHeads({target.num_attention_heads, target.num_key_value_heads});
  if (!target.on_field) model->SetConfig(std::make_shared<const ServedConfig>(*this, target, true, draft));
  return model;
}

std::unique_ptr<Module> ModelRegistry::Build(const ModelDescription& description, const ParallelConfig& parallel,
                                             const WeightsMapper& names) const {
  return Build(ConfigOf(description), parallel, names);
}

}  // namespace layercast
