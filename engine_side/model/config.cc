#include "layercast/model/config.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine_side/model/config_fields.h"
#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::int64_t kMostLayers = 10000;
constexpr std::int64_t kMostHeads = 65536;

DType ParseDType(const ConfigFields& fields) {
  const char* name = fields.Find("dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::string text = fields.Text(name, "float32");  // what transformers takes where none is said
  const std::optional<DType> dtype = DTypeFromTorch(text);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kF16 && *dtype != DType::kBF16)) {
    fields.Refuse(name, "float32, float16 or bfloat16", text);
  }
  return *dtype;
}

// The object that holds the rope's parameters: `rope_parameters`, or before it `rope_scaling`.
RopeConfig ParseRope(const ConfigFields& fields) {
  RopeConfig rope;
  rope.theta = fields.Number("rope_theta", rope.theta);
  const char* name = fields.Find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const nlohmann::json* object = fields.Find(name);
  if (object == nullptr) return rope;
  const ConfigFields parameters(*object, std::string(name) + ".");
  rope.type = parameters.Text("rope_type", parameters.Text("type", rope.type));
  rope.theta = parameters.Number("rope_theta", rope.theta);
  for (const auto& [key, value] : object->items()) {
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
      parameters.Refuse(key, "a number or a list of numbers (one rope for all layers)", value);
    }
  }
  return rope;
}

void ParseHeads(const ConfigFields& fields, ModelConfig& config) {
  config.num_attention_heads = fields.Size("num_attention_heads", std::nullopt, kMostHeads);
  config.num_key_value_heads = fields.Size("num_key_value_heads", config.num_attention_heads, kMostHeads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    ConfigFields::Refuse("num_attention_heads " + std::to_string(config.num_attention_heads) +
                         " is not divisible by num_key_value_heads " + std::to_string(config.num_key_value_heads));
  }
  if (fields.Find("head_dim") == nullptr && config.model_type == "qwen3") {
    config.head_dim = 128;  // the one class whose default does not come from hidden_size
  } else if (fields.Find("head_dim") == nullptr && config.hidden_size % config.num_attention_heads != 0) {
    ConfigFields::Refuse("hidden_size " + std::to_string(config.hidden_size) +
                         " is not divisible by num_attention_heads " + std::to_string(config.num_attention_heads) +
                         ", and there is no head_dim");
  } else {
    config.head_dim = fields.Size("head_dim", config.hidden_size / config.num_attention_heads, kMostHeads);
  }
  if (config.head_dim % 2 != 0) {
    ConfigFields::Refuse("head_dim: expected an even number for rotary embeddings, got " +
                         std::to_string(config.head_dim));
  }
}

// As transformers resolves them: a window counts only where it is switched on, for layers from max_window_layers on.
void ParseWindows(const ConfigFields& fields, ModelConfig& config) {
  config.layer_types = fields.Texts("layer_types");
  const bool listed = std::ranges::find(config.layer_types, "sliding_attention") != config.layer_types.end();
  const auto window = fields.Integer("sliding_window", 1, std::numeric_limits<std::int32_t>::max());
  if (fields.Flag("use_sliding_window", listed)) config.sliding_window = window;
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  if (config.layer_types.empty()) {
    const std::int64_t first = fields.Integer("max_window_layers", 0, kMostLayers).value_or(0);
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
      config.layer_types.emplace_back(config.sliding_window && i >= first ? "sliding_attention" : "full_attention");
    }
  }
  if (config.layer_types.size() != layers) {
    ConfigFields::Refuse("layer_types holds " + std::to_string(config.layer_types.size()) +
                         " entries, num_hidden_layers is " + std::to_string(layers));
  }
  for (const std::string& type : config.layer_types) {
    if (type == "full_attention" || (type == "sliding_attention" && config.sliding_window)) continue;
    fields.Refuse("layer_types", "full_attention, or sliding_attention with a sliding_window that is on", type);
  }
}

nlohmann::json ParseJson(std::string_view text) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    ConfigFields::Refuse(std::string("is not JSON: ") + error.what());
  }
}

}  // namespace

ModelConfig ModelConfig::Parse(const ModelDescription& description) {
  try {
    return Parse(std::string_view(description.config_json()));
  } catch (const Error& error) {
    if (description.directory().empty()) throw;
    throw Error(error.code(), (description.directory() / error.what()).string());  // ".../config.json: ..."
  }
}

ModelConfig ModelConfig::Parse(std::string_view config_json) {
  const nlohmann::json json = ParseJson(config_json);
  const ConfigFields fields(json, {});
  ModelConfig config;
  config.json = std::string(config_json);
  config.architectures = fields.Texts("architectures");
  config.model_type = fields.Text("model_type", "");
  config.dtype = ParseDType(fields);
  config.vocab_size = fields.Size("vocab_size");
  config.hidden_size = fields.Size("hidden_size");
  config.intermediate_size = fields.Size("intermediate_size");
  config.num_hidden_layers = fields.Integer("num_hidden_layers", 1, kMostLayers).value_or(0);
  if (config.num_hidden_layers == 0) ConfigFields::Refuse("num_hidden_layers is missing");
  ParseHeads(fields, config);
  config.max_position_embeddings = fields.Size("max_position_embeddings", 2048);
  config.rms_norm_eps = fields.Number("rms_norm_eps", config.rms_norm_eps);
  config.hidden_act = fields.Text("hidden_act", config.hidden_act);
  config.tie_word_embeddings = fields.Flag("tie_word_embeddings", false);
  config.attention_bias = fields.Flag("attention_bias", false);
  config.mlp_bias = fields.Flag("mlp_bias", false);
  config.rope = ParseRope(fields);
  ParseWindows(fields, config);
  config.bos_token_id = fields.Integer("bos_token_id", 0, std::numeric_limits<std::int32_t>::max());
  config.eos_token_ids = fields.Integers("eos_token_id");
  return config;
}

}  // namespace layercast
