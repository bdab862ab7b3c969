#include "layercast/model/config.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine_side/model/config_defaults.h"
#include "engine_side/model/config_fields.h"
#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::int64_t kMostHeads = 65536;
constexpr const char* kSliding = "sliding_attention";

DType ParseDType(const ConfigFields& fields) {
  const char* name = fields.Find("dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::string text = fields.Text(name, "float32");  // transformers' where neither it nor a checkpoint says one
  const std::optional<DType> dtype = DTypeFromTorch(text);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kF16 && *dtype != DType::kBF16)) {
    fields.Refuse(name, "float32, float16 or bfloat16", text);
  }
  return *dtype;
}

RopeConfig ParseRopeParameters(const nlohmann::json& object, const std::string& where, double theta) {
  const ConfigFields parameters(object, where);
  RopeConfig rope;
  rope.type = parameters.Text("rope_type", parameters.Text("type", rope.type));
  if (rope.type == "su") rope.type = "longrope";  // its first name
  rope.theta = parameters.Number("rope_theta", theta);
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

// As in transformers, a part that is written beside the parameters gives way to theirs ...
void AddOuterPart(const ConfigFields& fields, RopeConfig& rope) {
  if (fields.Find("partial_rotary_factor") == nullptr) return;
  rope.numbers.try_emplace("partial_rotary_factor", fields.Number("partial_rotary_factor", 1.0));
}

// ... and an original context takes the place of theirs, but for those of a type of layer.
void TakeOuterContext(const ConfigFields& fields, RopeConfig& rope) {
  const bool extended = rope.type == "llama3" || rope.type == "yarn" || rope.type == "longrope";
  if (extended && fields.Find("original_max_position_embeddings") != nullptr) {
    rope.numbers["original_max_position_embeddings"] = fields.Number("original_max_position_embeddings", 1.0);
  }
}

// As in transformers: a `rope_scaling` that says something, which is how READMEs have YaRN switched on, takes the place
// of `rope_parameters`, also where newer files have those.
std::string RopeField(const ConfigFields& fields) {
  const nlohmann::json* scaling = fields.Find("rope_scaling");
  return scaling == nullptr || scaling->empty() ? "rope_parameters" : "rope_scaling";
}

// What it takes the place of may be the only one that has the model's theta. transformers computes with 10000 then, and
// next to nothing of the model is left: the file has to say it where it counts.
void CheckThetaIsKept(const ConfigFields& fields, double theta) {
  const nlohmann::json* replaced = fields.Find("rope_parameters");
  if (replaced == nullptr) return;
  if (const auto full = replaced->find("full_attention"); full != replaced->end()) replaced = &*full;
  if (!replaced->is_object()) return;
  const double wanted = ConfigFields(*replaced, "rope_parameters.").Number("rope_theta", theta);
  if (wanted == theta) return;
  fields.Refuse("rope_scaling.rope_theta",
                nlohmann::json(wanted).dump() + ", as in rope_parameters, which rope_scaling takes the place of",
                theta);
}

// One object, or one for each type of layer ("full_attention").
void ParseRopes(const ConfigFields& fields, ModelConfig& config) {
  const double theta = fields.Number("rope_theta", RopeConfig().theta);
  const double local_theta = fields.Number("rope_local_base_freq", theta);
  const std::string name = RopeField(fields);
  const nlohmann::json* object = fields.Find(name);
  const auto is_object = [](const nlohmann::json& value) { return value.is_object(); };
  if (object == nullptr) {
    config.rope.theta = theta;
  } else if (object->is_object() && std::ranges::any_of(*object, is_object)) {
    for (const auto& [type, parameters] : object->items()) {
      if (parameters.is_null()) continue;
      const double otherwise = type == kSliding ? local_theta : theta;
      config.ropes[type] = ParseRopeParameters(parameters, name + "." + type + ".", otherwise);
    }
    config.rope = config.ropes.begin()->second;
    if (const auto full = config.ropes.find("full_attention"); full != config.ropes.end()) config.rope = full->second;
  } else {
    config.rope = ParseRopeParameters(*object, name + ".", theta);
  }
  if (config.model_type == "phi3" && config.rope.type == "yarn") config.rope.type = "longrope";  // as it was called
  if (config.ropes.empty()) TakeOuterContext(fields, config.rope);
  CheckThetaIsKept(fields, config.rope.theta);
  AddOuterPart(fields, config.rope);
  if (fields.Find("rope_local_base_freq") != nullptr) {
    if (config.ropes.empty()) config.ropes["full_attention"] = config.rope;
    const auto [sliding, is_new] = config.ropes.try_emplace(kSliding);
    if (is_new) sliding->second.theta = local_theta;
  }
  for (auto& [type, rope] : config.ropes) AddOuterPart(fields, rope);
}

void ParseHeads(const ConfigFields& fields, ModelConfig& config) {
  config.num_attention_heads = fields.Size("num_attention_heads", std::nullopt, kMostHeads);
  config.num_key_value_heads = fields.Size("num_key_value_heads", config.num_attention_heads, kMostHeads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    ConfigFields::Refuse("num_attention_heads " + std::to_string(config.num_attention_heads) +
                         " is not divisible by num_key_value_heads " + std::to_string(config.num_key_value_heads));
  }
  if (fields.Find("head_dim") == nullptr && config.hidden_size % config.num_attention_heads != 0) {
    ConfigFields::Refuse("hidden_size " + std::to_string(config.hidden_size) +
                         " is not divisible by num_attention_heads " + std::to_string(config.num_attention_heads) +
                         ", and there is no head_dim");
  } else {
    config.head_dim = fields.Size("head_dim", config.hidden_size / config.num_attention_heads, kMostHeads);
  }
}

// As transformers resolves them: a window counts only where it is switched on; which layers have it is listed, or
// follows a pattern (all but every n-th), or begins with max_window_layers. So does linear attention follow a pattern.
void ParseWindows(const ConfigFields& fields, ModelConfig& config) {
  config.layer_types = fields.Texts("layer_types");
  const bool listed = std::ranges::find(config.layer_types, kSliding) != config.layer_types.end();
  if (fields.Flag("use_sliding_window", listed)) {
    config.sliding_window = fields.Integer("sliding_window", 1, std::numeric_limits<std::int32_t>::max());
  }
  if (listed && !config.sliding_window) {
    ConfigFields::Refuse("layer_types has sliding_attention, expected a sliding_window that is on");
  }
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  if (config.layer_types.empty()) {
    const std::int64_t first = fields.Integer("max_window_layers", 0, kMostLayers).value_or(0);
    const auto pattern = fields.Integer("sliding_window_pattern", 1, kMostLayers);
    const auto interval = fields.Integer("full_attention_interval", 1, kMostLayers);
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
      const bool slides = config.sliding_window && (pattern ? (i + 1) % *pattern != 0 : i >= first);
      const bool is_linear = interval && (i + 1) % *interval != 0;
      config.layer_types.emplace_back(is_linear ? "linear_attention" : slides ? kSliding : "full_attention");
    }
  }
  if (config.layer_types.size() != layers) {
    ConfigFields::Refuse("layer_types holds " + std::to_string(config.layer_types.size()) +
                         " entries, num_hidden_layers is " + std::to_string(layers));
  }
}

std::optional<double> MaybeNumber(const ConfigFields& fields, const char* name) {
  return fields.Find(name) == nullptr ? std::nullopt : std::optional(fields.Number(name, 1.0));
}

}  // namespace

std::int64_t ModelConfig::WindowOf(std::int64_t layer) const {
  const std::string& type = layer_types.at(static_cast<std::size_t>(layer));
  if (type == "full_attention") return 0;
  if (type == kSliding) return sliding_window.value_or(0);
  ConfigFields::Refuse("layer_types: expected full_attention or sliding_attention of layer " + std::to_string(layer) +
                       ", got \"" + type + "\"");
}

const RopeConfig& ModelConfig::RopeOf(std::int64_t layer) const {
  if (ropes.empty()) return rope;
  const std::string& type = layer_types.at(static_cast<std::size_t>(layer));
  if (const auto found = ropes.find(type); found != ropes.end()) return found->second;
  ConfigFields::Refuse("rope_parameters has none for \"" + type + "\", which layer " + std::to_string(layer) + " is");
}

ModelConfig ModelConfig::Parse(const ModelDescription& description) {
  try {
    return Parse(std::string_view(description.config_json()));
  } catch (const Error& error) {
    if (description.directory().empty()) throw;
    throw Error(error.code(), (description.directory() / error.what()).string());  // ".../config.json: ..."
  }
}

ModelConfig ModelConfig::Parse(std::string_view config_json) {
  const nlohmann::json whole = ParseConfigText(config_json);
  const bool nested = whole.is_object() && whole.contains("text_config") && whole["text_config"].is_object();
  nlohmann::json json = nested ? TextFields(whole) : whole;
  CompleteConfig(json);
  const ConfigFields fields(json, nested ? "text_config." : "");
  ModelConfig config;
  config.json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  config.model_type = fields.Text("model_type", "");
  config.architectures = fields.Texts("architectures");
  config.dtype = ParseDType(fields);
  config.vocab_size = fields.Size("vocab_size");
  config.hidden_size = fields.Size("hidden_size");
  const bool attends = !IsAttentionFree(json);
  if (attends) config.intermediate_size = fields.Size("intermediate_size");
  config.num_hidden_layers = fields.Integer("num_hidden_layers", 1, kMostLayers).value_or(0);
  if (config.num_hidden_layers == 0) ConfigFields::Refuse("num_hidden_layers is missing");
  if (attends) ParseHeads(fields, config);
  config.max_position_embeddings = fields.Size("max_position_embeddings", 2048);
  config.rms_norm_eps = fields.Number("rms_norm_eps", fields.Number("layer_norm_epsilon", config.rms_norm_eps));
  config.hidden_act = fields.Text("hidden_activation", fields.Text("hidden_act", config.hidden_act));
  config.tie_word_embeddings = fields.Flag("tie_word_embeddings", false);
  config.attention_bias = fields.Flag("attention_bias", false);
  config.mlp_bias = fields.Flag("mlp_bias", false);
  config.qkv_bias = fields.Flag("qkv_bias", true);
  config.use_qk_norm = fields.Flag("use_qk_norm", false);
  config.query_pre_attn_scalar = MaybeNumber(fields, "query_pre_attn_scalar");
  config.attn_logit_softcapping = MaybeNumber(fields, "attn_logit_softcapping");
  config.final_logit_softcapping = MaybeNumber(fields, "final_logit_softcapping");
  ParseRopes(fields, config);
  ParseWindows(fields, config);
  config.bos_token_id = fields.Integer("bos_token_id", 0, std::numeric_limits<std::int32_t>::max());
  config.eos_token_ids = fields.Integers("eos_token_id");
  return config;
}

}  // namespace layercast
