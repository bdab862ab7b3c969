// ModelConfig::Parse: here, because what a config.json leaves out is said by its family (config_classes.h).
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine_side/model/config/config_defaults.h"
#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/config/config_rope.h"
#include "engine_side/model/registry/config_classes.h"
#include "layercast/error.h"
#include "layercast/model/config.h"
#include "src/base/bytes/python_json.h"

namespace layercast {
namespace {

constexpr std::int64_t kMostHeads = 65536;

DType ParseDType(const ConfigFields& fields) {
  const char* name = fields.Find("dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::string text = fields.Text(name, "float32");  // what transformers takes if nothing names one
  const std::optional<DType> dtype = DTypeFromTorch(text);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kF16 && *dtype != DType::kBF16)) {
    fields.Refuse(name, "float32, float16 or bfloat16", text);
  }
  return *dtype;
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

// Sets sliding_window and layer_types as transformers does. A window counts only if it is switched on. The layers that
// have it are listed, follow a pattern (all but every n-th), or begin at max_window_layers. Linear attention follows a
// pattern too.
void ParseWindows(const ConfigFields& fields, ModelConfig& config) {
  config.layer_types = fields.Texts("layer_types");
  const bool listed = std::ranges::find(config.layer_types, kSlidingAttention) != config.layer_types.end();
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
      config.layer_types.emplace_back(is_linear ? "linear_attention" : slides ? kSlidingAttention : kFullAttention);
    }
  }
  if (config.layer_types.size() != layers) {
    ConfigFields::Refuse("layer_types holds " + std::to_string(config.layer_types.size()) +
                         " entries, num_hidden_layers is " + std::to_string(layers));
  }
}

// The language model's fields as the file has them, without defaults. `where` comes before their names in messages.
struct WrittenFields {
  nlohmann::json json;
  std::string where;
};

WrittenFields ReadFields(std::string_view config_json) {
  const nlohmann::json whole = ParseConfigText(config_json);
  const ConfigFields outer(whole);
  const nlohmann::json* text = outer.Find("text_config");
  if (text == nullptr) return {whole, ""};
  if (!text->is_object() || !BareFloat(*text).empty()) outer.Refuse("text_config", "an object", *text);
  return {TextFields(whole), "text_config."};
}

// What `read` makes of the description's text. Errors name the folder of the file: ".../config.json: ...".
auto NamingFile(const ModelDescription& description, const auto& read) {
  try {
    return read(std::string_view(description.config_json()));
  } catch (const Error& error) {
    if (description.directory().empty()) throw;
    throw Error(error.code(), (description.directory() / error.what()).string());
  }
}

std::optional<double> MaybeNumber(const ConfigFields& fields, const char* name) {
  return fields.Find(name) == nullptr ? std::nullopt : std::optional(fields.Number(name, 1.0));
}

}  // namespace

ModelConfig ModelConfig::Parse(const ModelDescription& description) {
  return NamingFile(description, [](std::string_view text) { return Parse(text); });
}

std::vector<std::string> ModelConfig::ArchitecturesOf(const ModelDescription& description) {
  return NamingFile(description, [](std::string_view text) {
    const auto [json, where] = ReadFields(text);
    return ConfigFields(json, where).Texts("architectures");
  });
}

ModelConfig ModelConfig::Parse(std::string_view config_json) {
  auto [json, where] = ReadFields(config_json);
  CompleteConfig(json);
  const ConfigFields fields(json, where);
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
  config.eos_token_ids = fields.Integers("eos_token_id");
  return config;
}

}  // namespace layercast
