// Reads rotary embeddings in both spellings in use: which types there are, whether their numbers are possible, and how
// long a context they make.
#include "engine_side/model/config/config_rope.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/bytes/python_json.h"

namespace layercast {
namespace {

constexpr const char* kOriginalContext = "original_max_position_embeddings";
constexpr const char* kRotatedPart = "partial_rotary_factor";

// A number that rotary embeddings of one type compute with, and its bounds.
struct RopeNumber {
  std::string_view type;
  const char* name;
  std::optional<double> least;  // nullopt: any number above 0
  bool needed = false;
};

// The bounds are those beyond which transformers warns.
constexpr auto kRopeNumbers = std::to_array<RopeNumber>({{"linear", "factor", 1.0, true},
                                                         {"dynamic", "factor", 1.0, true},
                                                         {"llama3", "factor", 1.0, true},
                                                         {"llama3", "low_freq_factor", std::nullopt, true},
                                                         {"llama3", "high_freq_factor", std::nullopt, true},
                                                         {"llama3", kOriginalContext, 1.0},
                                                         {"yarn", "factor", 1.0},
                                                         {"yarn", kOriginalContext, 1.0},
                                                         {"yarn", "attention_factor", std::nullopt},
                                                         {"yarn", "beta_fast", 0.0},
                                                         {"yarn", "beta_slow", 0.0},
                                                         {"yarn", "mscale", 0.0},
                                                         {"yarn", "mscale_all_dim", 0.0},
                                                         {"longrope", "factor", 1.0},
                                                         {"longrope", kOriginalContext, 1.0},
                                                         {"longrope", "attention_factor", std::nullopt}});

double RotatedPart(const ConfigFields& fields) {
  const double part = fields.Number(kRotatedPart, 1.0);
  if (part > 1.0) fields.Refuse(kRotatedPart, "a number above 0 and at most 1", part);
  return part;
}

// Rope type llama3 divides by the difference of the two factors.
void CheckLlama3(const ConfigFields& parameters) {
  const double low = parameters.Number("low_freq_factor", 1.0);
  const double high = parameters.Number("high_freq_factor", 1.0);
  if (high > low) return;
  parameters.Refuse("high_freq_factor", "a number above low_freq_factor " + nlohmann::json(low).dump(), high);
}

// Rope type yarn needs a ramp that goes up, and it divides by the logarithm of theta.
void CheckYarn(const ConfigFields& parameters, double theta) {
  const auto unless_zero = [&](const char* name, double otherwise) {
    const double value = parameters.NumberFrom(name, 0.0, otherwise);
    return value == 0.0 ? otherwise : value;
  };
  const double fast = unless_zero("beta_fast", 32.0);
  const double slow = unless_zero("beta_slow", 1.0);
  if (slow > fast) parameters.Refuse("beta_slow", "at most beta_fast " + nlohmann::json(fast).dump(), slow);
  if (theta <= 1.0) parameters.Refuse("rope_theta", "a number above 1 for rope type 'yarn'", theta);
}

void CheckNumbers(const ConfigFields& parameters, const RopeConfig& rope) {
  for (const RopeNumber& number : kRopeNumbers) {
    if (number.type != rope.type) continue;
    if (number.needed && parameters.Find(number.name) == nullptr) {
      ConfigFields::Refuse(parameters.NameOf(number.name) + " is missing, which rope type '" + rope.type + "' needs");
    }
    if (number.least) {
      (void)parameters.NumberFrom(number.name, *number.least, *number.least);
    } else {
      (void)parameters.Number(number.name, 1.0);
    }
  }
  (void)RotatedPart(parameters);
  if (rope.type == "llama3") CheckLlama3(parameters);
  if (rope.type == "yarn") CheckYarn(parameters, rope.theta);
}

RopeConfig ParseRopeParameters(const nlohmann::json& object, const std::string& where, double theta) {
  const ConfigFields parameters(object, where);
  RopeConfig rope;
  rope.type = parameters.Text("rope_type", parameters.Text("type", rope.type));
  if (rope.type == "su") rope.type = "longrope";  // "su" was its first name
  rope.theta = parameters.Number("rope_theta", theta);
  CheckNumbers(parameters, rope);
  for (const auto& [key, value] : object.items()) {
    if (key == "rope_type" || key == "type" || key == "rope_theta" || value.is_null()) continue;
    if (value.is_number()) {
      rope.numbers[key] = value.get<double>();
    } else if (value.is_boolean()) {
      rope.numbers[key] = value.get<bool>() ? 1.0 : 0.0;
    } else if (value.is_array()) {
      for (const nlohmann::json& item : value) {
        if (!item.is_number()) parameters.Refuse(key, "a list of numbers", value);
        rope.lists[key].push_back(item.get<double>());
      }
    } else {
      parameters.Refuse(key, "a number or a list of numbers", value);
    }
  }
  return rope;
}

// Takes a partial_rotary_factor from beside the rope parameters if they have none of their own, as transformers does.
void AddOuterPart(const ConfigFields& fields, RopeConfig& rope) {
  if (fields.Find(kRotatedPart) == nullptr) return;
  rope.numbers.try_emplace(kRotatedPart, RotatedPart(fields));
}

// Takes original_max_position_embeddings from beside the rope parameters, in place of their own, as transformers does.
// Not used for parameters that are given for each type of layer.
void TakeOuterContext(const ConfigFields& fields, RopeConfig& rope) {
  const bool extended = rope.type == "llama3" || rope.type == "yarn" || rope.type == "longrope";
  if (extended && fields.Find(kOriginalContext) != nullptr) {
    rope.numbers[kOriginalContext] = fields.NumberFrom(kOriginalContext, 1.0, 1.0);
  }
}

// The field that counts. As in transformers, a `rope_scaling` that is not empty, which is how READMEs have YaRN
// switched on, replaces `rope_parameters` even if a newer file has those.
std::string RopeField(const ConfigFields& fields) {
  const nlohmann::json* scaling = fields.Find("rope_scaling");
  return scaling == nullptr || scaling->empty() ? "rope_parameters" : "rope_scaling";
}

// A replaced `rope_parameters` may be the only place that has the model's theta. transformers then computes with 10000,
// which leaves next to nothing of the model, so the file is refused until the field that counts has theta.
void CheckThetaIsKept(const ConfigFields& fields, double theta) {
  const nlohmann::json* replaced = fields.Find("rope_parameters");
  if (replaced == nullptr) return;
  if (const auto full = replaced->find(kFullAttention); full != replaced->end()) replaced = &*full;
  if (!replaced->is_object()) return;
  const double wanted = ConfigFields(*replaced, fields.NameOf("rope_parameters.")).Number("rope_theta", theta);
  if (wanted == theta) return;
  fields.Refuse("rope_scaling.rope_theta",
                nlohmann::json(wanted).dump() + ", as in rope_parameters, which rope_scaling takes the place of",
                theta);
}

// Without a factor, yarn's factor is max_position_embeddings over the original context, and must not be below 1.
void CheckImpliedFactor(const ModelConfig& config, const RopeConfig& rope) {
  const auto original = rope.numbers.find(kOriginalContext);
  if (rope.type != "yarn" || rope.numbers.contains("factor") || original == rope.numbers.end()) return;
  if (original->second <= static_cast<double>(config.max_position_embeddings)) return;
  ConfigFields::Refuse("max_position_embeddings " + std::to_string(config.max_position_embeddings) + " is less than " +
                       kOriginalContext + " " + nlohmann::json(original->second).dump() +
                       ", and rope type 'yarn' has no factor");
}

// Numbers that say nothing new, of any type: absent, they have these values. Zeros of beta_fast and beta_slow count as
// absent.
constexpr std::pair<const char*, double> kImplied[] = {{kRotatedPart, 1.0},     {"beta_fast", 32.0}, {"beta_fast", 0.0},
                                                       {"beta_slow", 1.0},      {"beta_slow", 0.0},  {"mscale", 0.0},
                                                       {"mscale_all_dim", 0.0}, {"truncate", 1.0}};

}  // namespace

RopeConfig EffectiveRope(RopeConfig rope, std::int64_t max_position_embeddings) {
  const auto positions = static_cast<double>(max_position_embeddings);
  if (rope.type == "default") {
    std::erase_if(rope.numbers, [](const auto& number) { return number.first != kRotatedPart; });
    rope.lists.clear();
  }
  if (rope.type == "llama3" || rope.type == "yarn" || rope.type == "longrope") {
    rope.numbers.try_emplace(kOriginalContext, positions);
  }
  if (rope.type == "yarn") rope.numbers.try_emplace("factor", positions / rope.numbers.at(kOriginalContext));
  if (rope.type == "dynamic" || rope.type == "longrope") rope.numbers["max_position_embeddings"] = positions;
  for (const auto& [name, implied] : kImplied) {
    if (const auto number = rope.numbers.find(name); number != rope.numbers.end() && number->second == implied) {
      rope.numbers.erase(number);
    }
  }
  return rope;
}

// The field is one object, or has one object for each type of layer ("full_attention").
void ParseRopes(const ConfigFields& fields, ModelConfig& config) {
  const double theta = fields.Number("rope_theta", RopeConfig().theta);
  const double local_theta = fields.Number("rope_local_base_freq", theta);
  const std::string name = RopeField(fields);
  const std::string where = fields.NameOf(name) + ".";
  const nlohmann::json* object = fields.Find(name);
  const auto is_object = [](const nlohmann::json& value) { return value.is_object() && BareFloat(value).empty(); };
  if (object == nullptr) {
    config.rope.theta = theta;
  } else if (object->is_object() && std::ranges::any_of(*object, is_object)) {
    for (const auto& [type, parameters] : object->items()) {
      if (parameters.is_null()) continue;
      const double otherwise = type == kSlidingAttention ? local_theta : theta;
      config.ropes[type] = ParseRopeParameters(parameters, where + type + ".", otherwise);
    }
    config.rope = config.ropes.begin()->second;
    if (const auto full = config.ropes.find(kFullAttention); full != config.ropes.end()) config.rope = full->second;
  } else {
    config.rope = ParseRopeParameters(*object, where, theta);
  }
  if (config.model_type == "phi3" && config.rope.type == "yarn") config.rope.type = "longrope";  // phi3's name for it
  if (config.ropes.empty()) TakeOuterContext(fields, config.rope);
  CheckThetaIsKept(fields, config.rope.theta);
  AddOuterPart(fields, config.rope);
  if (fields.Find("rope_local_base_freq") != nullptr) {
    if (config.ropes.empty()) config.ropes[kFullAttention] = config.rope;
    const auto [sliding, is_new] = config.ropes.try_emplace(kSlidingAttention);
    if (is_new) sliding->second.theta = local_theta;
  }
  for (auto& [type, rope] : config.ropes) AddOuterPart(fields, rope);
  CheckImpliedFactor(config, config.rope);
  for (const auto& [type, rope] : config.ropes) CheckImpliedFactor(config, rope);
}

// This is vLLM's rule (_get_and_verify_max_len in vllm/config/model.py). In published files, max_position_embeddings is
// the length before extension for the types linear and yarn, and the full length for llama3, longrope and all of Gemma
// 3. "dynamic" follows transformers: vLLM rotates by other frequencies there (see MakeRope).
std::int64_t ModelConfig::ContextLength() const {
  constexpr double kMost = std::numeric_limits<std::int32_t>::max();
  const bool extends = rope.type == "linear" || rope.type == "yarn";
  const auto factor = rope.numbers.find("factor");
  if (!extends || factor == rope.numbers.end() || model_type.find("gemma3") != std::string::npos) {
    return max_position_embeddings;
  }
  auto length = static_cast<double>(max_position_embeddings);
  if (const auto original = rope.numbers.find(kOriginalContext);
      rope.type == "yarn" && original != rope.numbers.end()) {
    length = original->second;
  }
  return static_cast<std::int64_t>(std::min(length * factor->second, kMost));
}

}  // namespace layercast
