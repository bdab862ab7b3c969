// Reads and applies an adapter_config.json. What each field does to an adapter stands in the three tables here.
#include "layercast/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/python_json.h"
#include "src/base/naming_source.h"
#include "src/base/utf8.h"
#include "src/checkpoint/strict_json.h"

namespace layercast {
namespace {

using nlohmann::json;

constexpr char kFile[] = "adapter_config.json";
constexpr std::int64_t kMostRank = std::numeric_limits<std::int32_t>::max();

// Of training alone, or without a meaning for the layers here.
constexpr std::array<std::string_view, 16> kIgnored = {
    "auto_mapping",      "corda_config",   "eva_config",     "exclude_modules",
    "fan_in_fan_out",    "inference_mode", "layers_pattern", "layers_to_transform",
    "loftq_config",      "lora_dropout",   "lora_ga_config", "megatron_core",
    "qalora_group_size", "revision",       "runtime_config", "task_type"};

// Not served where they are set.
struct RefusedField {
  std::string_view name;
  std::string_view why;
};
constexpr std::array<RefusedField, 13> kRefused = {{
    {"alora_invocation_tokens", "activated LoRA is not served"},
    {"arrow_config", "routing between adapters (Arrow) is not served"},
    {"kasa_config", "KaSA is not served"},
    {"layer_replication", "layers that are used several times are not served"},
    {"lora_bias", "the biases of lora_B are not served: train with lora_bias=False"},
    {"megatron_config", "layers of Megatron are not served"},
    {"modules_to_save", "whole copies of modules are not served: publish them with the base"},
    {"monteclora_config", "MonteCLoRA is not served"},
    {"trainable_token_indices", "trained rows of an embedding are not served: train factors of embed_tokens"},
    {"use_bdlora", "block-diagonal LoRA is not served"},
    {"use_dora", "the magnitudes of DoRA are not served: train with use_dora=False"},
    {"use_qalora", "QA-LoRA is not served"},
    {"velora_config", "VeLoRA is not served"},
}};

// Ways to begin a training that leave the base as it is.
constexpr std::array<std::string_view, 4> kPlainBeginnings = {"eva", "gaussian", "mica", "orthogonal"};

[[noreturn]] void Fail(ErrorCode code, const std::string& message) {
  throw Error(code, std::string(kFile) + ": " + message);
}

// One field that is in the file, and is not null.
class Field {
 public:
  Field(std::string_view name, const json& value) : name_(name), value_(value) {}

  std::string_view name() const { return name_; }
  const json& value() const { return value_; }

  bool IsSet() const {
    if (value_.is_boolean()) return value_.get<bool>();
    if (value_.is_string()) return !value_.get_ref<const std::string&>().empty();
    return !value_.empty();  // of [], {} and null
  }

  [[noreturn]] void Refuse(std::string_view expected) const {
    Fail(ErrorCode::kInvalidArgument,
         Escaped(name_, 200) + ": expected " + std::string(expected) + ", got " + ShownJson(value_));
  }
  // Shows more of the value: it may list modules, and each of them matters.
  [[noreturn]] void RefuseAsUnsupported(std::string_view expected, std::string_view why) const {
    constexpr std::size_t kMostShown = 1000;
    const std::string shown = value_.dump(-1, ' ', true, json::error_handler_t::replace);
    Fail(ErrorCode::kUnsupported, Escaped(name_, 200) + ": expected " + std::string(expected) + ", got " +
                                      Escaped(shown, kMostShown) + ": " + std::string(why));
  }

  bool Flag() const {
    if (!value_.is_boolean()) Refuse("true or false");
    return value_.get<bool>();
  }

  std::int64_t Rank() const {
    const bool fits = value_.is_number_integer() && value_ >= 1 && value_ <= kMostRank;
    if (!fits) Refuse("an integer from 1 to " + std::to_string(kMostRank));
    return value_.get<std::int64_t>();
  }

  double Alpha() const {
    constexpr double kMost = std::numeric_limits<float>::max();
    if (!value_.is_number() || std::abs(value_.get<double>()) > kMost) Refuse("a number that a float holds");
    return value_.get<double>();
  }

  std::string Text() const {
    if (!value_.is_string()) Refuse("a text");
    return value_.get<std::string>();
  }

  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    if (!value_.is_array()) Refuse("a list of texts");
    for (const auto& one : value_) {
      if (!one.is_string()) Refuse("a list of texts");
      texts.push_back(one.get<std::string>());
    }
    return texts;
  }

  // Calls `add(pattern, field)` for each entry of an object whose keys are patterns, in the file's order.
  template <class Add>
  void ForPatterns(const std::vector<std::string>& keys, const Add& add) const {
    if (!value_.is_object()) Refuse("an object of patterns");
    for (const std::string& key : keys) {
      ModulePattern modules = NamingSource(std::string(kFile) + ": " + name_, [&] { return ModulePattern(key); });
      add(std::move(modules), Field(name_ + "[" + Quote(key) + "]", value_.at(key)));
    }
  }

 private:
  std::string name_;
  const json& value_;
};

// What a parsed object does not tell: in which order the keys of its patterns are.
class PatternOrder final : public JsonVisitor {
 public:
  void Visit(std::span<const std::string_view> path, const JsonValue& value) override {
    if (path.size() != 2 || value.kind == JsonValue::Kind::kEndObject) return;
    if (path[0] == "rank_pattern") rank.emplace_back(path[1]);
    if (path[0] == "alpha_pattern") alpha.emplace_back(path[1]);
  }

  std::vector<std::string> rank;
  std::vector<std::string> alpha;
};

// Throws kInvalidArgument for what is no JSON object, nested too deeply, or has a key twice, of which readers keep one
// or the other.
json Parse(std::string_view text, PatternOrder& order) {
  const std::string strict = WithoutBareFloats(text);
  try {
    WalkJsonObject(strict, kFile, order);
  } catch (const Error& error) {  // of a file it would be corrupt; here it is somebody's argument
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
  auto parsed = ParseShallowJson<json>(strict);
  if (parsed.is_discarded()) {
    Fail(ErrorCode::kInvalidArgument, "nested more than " + std::to_string(kDeepestJson) + " deep");
  }
  return parsed;
}

std::string Lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// The first to be looked at: another method has other fields.
void CheckType(const json& parsed) {
  const auto found = parsed.find("peft_type");
  if (found == parsed.end() || found->is_null()) {
    Fail(ErrorCode::kInvalidArgument, "peft_type: expected \"LORA\", got no such field");
  }
  const Field field("peft_type", *found);
  if (Lower(field.Text()) != "lora") field.RefuseAsUnsupported("\"LORA\"", "other methods are not served");
}

void CheckBias(const Field& field) {
  if (field.Text() != "none") {
    field.RefuseAsUnsupported("\"none\"",
                              "biases of the base that were trained are not served: train with bias=\"none\"");
  }
}

void CheckBeginning(const Field& field) {
  if (field.value().is_boolean()) return;
  const std::string way = Lower(field.Text());
  if (std::ranges::find(kPlainBeginnings, way) != kPlainBeginnings.end()) return;
  constexpr std::string_view kExpected = "true, false, \"gaussian\", \"orthogonal\", \"eva\" or \"mica\"";
  for (const std::string_view moves : {"pissa", "olora", "corda", "lora_ga", "loftq"}) {
    if (!way.starts_with(moves)) continue;
    field.RefuseAsUnsupported(
        kExpected,
        "training moved the base, to which alone these factors belong: save the adapter once more with PEFT's "
        "save_pretrained(path_initial_model_for_weight_conversion=...), which writes factors for the original base");
  }
  field.RefuseAsUnsupported(kExpected, "nobody here knows whether that moves the base");
}

// Takes a field that acts. Returns false if there is none of that name.
bool Take(AdapterConfig& config, const Field& field, const PatternOrder& order) {
  const std::string_view name = field.name();
  if (name == "peft_type") return true;  // looked at before
  if (name == "bias") return CheckBias(field), true;
  if (name == "init_lora_weights") return CheckBeginning(field), true;
  if (name == "r") return config.r = field.Rank(), true;
  if (name == "lora_alpha") return config.lora_alpha = field.Alpha(), true;
  if (name == "use_rslora") return config.use_rslora = field.Flag(), true;
  if (name == "ensure_weight_tying") return config.ensure_weight_tying = field.Flag(), true;
  if (name == "target_parameters") return config.target_parameters = field.Texts(), true;
  if (name == "base_model_name_or_path") return config.base_model_name_or_path = field.Text(), true;
  if (name == "peft_version") return config.peft_version = field.Text(), true;
  if (name == "target_modules") {
    if (!field.value().is_string() && !field.value().is_array()) field.Refuse("a list of texts, or a text");
    if (field.value().is_string()) {
      config.target_expression = field.Text();
    } else {
      config.target_modules = field.Texts();
    }
    return true;
  }
  if (name == "rank_pattern") {
    field.ForPatterns(order.rank, [&](ModulePattern modules, const Field& r) {
      config.rank_pattern.push_back({std::move(modules), r.Rank()});
    });
    return true;
  }
  if (name == "alpha_pattern") {
    field.ForPatterns(order.alpha, [&](ModulePattern modules, const Field& alpha) {
      config.alpha_pattern.push_back({std::move(modules), alpha.Alpha()});
    });
    return true;
  }
  return false;
}

// Refuses a field that does not act, if it is set.
void Refuse(const Field& field) {
  if (std::ranges::find(kIgnored, field.name()) != kIgnored.end() || !field.IsSet()) return;
  const auto known = std::ranges::find(kRefused, field.name(), &RefusedField::name);
  if (known != kRefused.end()) field.RefuseAsUnsupported("it unset", known->why);
  field.RefuseAsUnsupported("no such field", "what it does to an adapter is not known here");
}

double AlphaOf(const AdapterConfig& config, std::string_view path) {
  for (const auto& [modules, alpha] : config.alpha_pattern) {
    if (modules.Matches(path)) return alpha;
  }
  return config.lora_alpha;
}

template <class Patterns>
void AddUnused(const Patterns& patterns, const char* name, std::span<const std::string> paths,
               std::vector<std::string>& unused) {
  for (const auto& pattern : patterns) {
    const auto matches = [&](const std::string& path) { return pattern.modules.Matches(path); };
    if (std::ranges::none_of(paths, matches)) {
      unused.push_back(std::string(name) + " " + Quote(pattern.modules.key()));
    }
  }
}

// The patterns as a JSON object in their order. Of a repeated key, which a file cannot have, the first one acts.
template <class Pattern, class Value>
std::string Entries(const std::vector<Pattern>& patterns, Value Pattern::*value) {
  std::string text;
  std::set<std::string_view> seen;
  for (const Pattern& pattern : patterns) {
    if (!seen.insert(pattern.modules.key()).second) continue;
    text += (text.empty() ? "" : ",") + json(pattern.modules.key()).dump() + ":" + json(pattern.*value).dump();
  }
  return "{" + text + "}";
}

}  // namespace

AdapterConfig AdapterConfig::FromJson(std::string_view text) {
  PatternOrder order;
  const json parsed = Parse(text, order);
  CheckType(parsed);
  AdapterConfig config;
  for (const auto& [name, value] : parsed.items()) {
    if (value.is_null()) continue;
    const Field field(name, value);
    if (!Take(config, field, order)) Refuse(field);
  }
  return config;
}

std::int64_t AdapterConfig::RankOf(std::string_view module_path) const {
  for (const RankPattern& pattern : rank_pattern) {
    if (pattern.modules.Matches(module_path)) return pattern.r;
  }
  return r;
}

float AdapterConfig::ScaleOf(std::string_view module_path) const {
  const auto rank = static_cast<double>(RankOf(module_path));
  return static_cast<float>(AlphaOf(*this, module_path) / (use_rslora ? std::sqrt(rank) : rank));
}

std::vector<std::string> AdapterConfig::UnusedPatterns(std::span<const std::string> module_paths) const {
  std::vector<std::string> unused;
  AddUnused(rank_pattern, "rank_pattern", module_paths, unused);
  AddUnused(alpha_pattern, "alpha_pattern", module_paths, unused);
  return unused;
}

std::string AdapterConfig::Canonical() const {
  std::vector<std::string> parameters = target_parameters;
  std::ranges::sort(parameters);
  std::string text = "{\"alpha_pattern\":" + Entries(alpha_pattern, &AlphaPattern::lora_alpha);
  const auto add = [&text](const char* name, const json& value) {
    text += std::string(",\"") + name + "\":" + value.dump();
  };
  add("ensure_weight_tying", ensure_weight_tying);
  add("lora_alpha", lora_alpha);
  add("peft_type", "LORA");
  if (!parameters.empty()) add("peft_version", peft_version);
  add("r", r);
  text += ",\"rank_pattern\":" + Entries(rank_pattern, &RankPattern::r);
  add("target_parameters", parameters);
  add("use_rslora", use_rslora);
  return text + "}";
}

}  // namespace layercast
