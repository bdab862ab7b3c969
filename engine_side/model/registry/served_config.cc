#include "engine_side/model/registry/served_config.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/config/config_rope.h"

namespace layercast {
namespace {

using Json = nlohmann::json;

constexpr const char* kArchitectures = "architectures";

// "Gemma3" of Gemma3ForCausalLM, Gemma3ForConditionalGeneration, Gemma3Model and Gemma3TextModel: one language model,
// saved from different classes of transformers.
std::string StemOf(std::string architecture) {
  if (const std::size_t ending = architecture.rfind("For"); ending != architecture.npos) {
    return architecture.substr(0, ending);
  }
  for (const std::string_view ending : {"Model", "Text"}) {
    if (architecture.ends_with(ending)) architecture.resize(architecture.size() - ending.size());
  }
  return architecture;
}

// Parses the text without the fields that concern no computation, but could not be understood.
Json ReadSource(std::string_view config_json) {
  Json config = ParseConfigText(config_json);
  static_cast<void>(ConfigFields(config));  // throws unless it is an object
  const auto strip = [](Json& fields) {
    for (const char* left_out : {"dtype", "torch_dtype", "quantization_config", "eos_token_id"}) fields.erase(left_out);
  };
  strip(config);
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) strip(*text);
  return config;
}

bool Names(const Json& config, const char* field) {
  const auto found = config.find(field);
  return found != config.end() && !found->is_null();
}

// Puts some fields over those of a whole configuration. Its rope_theta may lie in two places.
Json Overlaid(Json whole, const Json& some) {
  whole.update(some);
  if (!Names(some, "rope_theta")) return whole;
  for (const char* field : {"rope_parameters", "rope_scaling"}) {
    const auto ropes = whole.find(field);
    if (ropes == whole.end() || !ropes->is_object() || some.contains(field)) continue;
    const auto full = ropes->find(kFullAttention);
    Json& rope = full == ropes->end() ? *ropes : *full;
    if (rope.is_object() && rope.contains("rope_theta")) rope["rope_theta"] = some["rope_theta"];
  }
  return whole;
}

std::string Shown(const Json& value) {
  constexpr std::size_t kMostShown = 100;
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kMostShown ? text : text.substr(0, kMostShown) + "...";
}

ConfigDifference DifferenceIn(const std::string& field, const Json* expected, const Json* got) {
  if (expected != nullptr && got != nullptr && expected->is_array() && got->is_array() &&
      expected->size() == got->size()) {
    std::size_t at = 0;
    while ((*expected)[at] == (*got)[at]) ++at;
    return {field + "[" + std::to_string(at) + "]", Shown((*expected)[at]), Shown((*got)[at])};
  }
  const auto show = [](const Json* value) { return value == nullptr || value->is_null() ? "nothing" : Shown(*value); };
  return {field, show(expected), show(got)};
}

std::vector<ConfigDifference> Differences(const EffectiveFields& expected, const EffectiveFields& got) {
  EffectiveFields all = expected;
  all.insert(got.begin(), got.end());
  const auto find = [](const EffectiveFields& fields, const std::string& name) {
    const auto found = fields.find(name);
    return found == fields.end() ? nullptr : &found->second;
  };
  std::vector<ConfigDifference> differences;
  for (const auto& [name, value] : all) {
    const Json* const mine = find(expected, name);
    const Json* const theirs = find(got, name);
    if (mine != nullptr && theirs != nullptr && *mine == *theirs) continue;
    differences.push_back(DifferenceIn(name, mine, theirs));
  }
  return differences;
}

// The common fields, and those that a family reads while `build` builds its tree.
template <class Build>
EffectiveFields Gather(ModelConfig& config, const Build& build) {
  EffectiveFields fields;
  AddFields(config, fields);
  config.on_field = [&fields](std::string_view name, std::string_view value) {
    fields[std::string(name)] = Json::parse(value);
  };
  build();
  return fields;
}

}  // namespace

std::string Sentence(const ConfigDifference& difference) {
  return difference.field + ": expected " + difference.expected + ", got " + difference.got;
}

ServedConfig::ServedConfig(ModelRegistry registry, ModelConfig target, bool speculates,
                           std::optional<ModelConfig> draft)
    : registry_(std::move(registry)), target_(std::move(target)), speculates_(speculates), draft_(std::move(draft)) {}

std::vector<ConfigDifference> ServedConfig::DifferencesFrom(std::string_view config_json) const {
  Json source = ReadSource(config_json);
  const std::vector<std::string> names = ModelConfig::ArchitecturesOf(ModelDescription::FromJson(source.dump()));
  const std::string family = StemOf(registry_.FamilyNameOf(target_));
  const auto is_of_family = [&](const std::string& name) { return StemOf(name) == family; };
  if (!names.empty() && std::ranges::none_of(names, is_of_family)) {
    return {{kArchitectures, Shown(target_.architectures), Shown(names)}};
  }
  if (names.empty() && !Names(source, "model_type") && !Names(source, "text_config")) {
    source = Overlaid(Json::parse(target_.json), source);
  }
  source[kArchitectures] = target_.architectures;
  return Differences(FieldsOf(target_), FieldsOf(ModelConfig::Parse(source.dump())));
}

std::vector<ConfigDifference> ServedConfig::DraftDifferencesFrom(std::string_view config_json) const {
  if (!draft_) return {};
  Json source = ReadSource(config_json);
  source[kArchitectures] = draft_->architectures;
  return Differences(DraftFieldsOf(*draft_), DraftFieldsOf(ModelConfig::Parse(source.dump())));
}

EffectiveFields ServedConfig::FieldsOf(ModelConfig target) const {
  return Gather(target, [&] {
    if (speculates_ && !draft_) {
      static_cast<void>(registry_.BuildWithDraft(target, std::nullopt, {}));
    } else {
      static_cast<void>(registry_.Build(target, {}));
    }
  });
}

EffectiveFields ServedConfig::DraftFieldsOf(ModelConfig draft) const {
  return Gather(draft, [&] { static_cast<void>(registry_.BuildWithDraft(target_, draft, {})); });
}

}  // namespace layercast
