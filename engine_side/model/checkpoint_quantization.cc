#include "engine_side/model/checkpoint_quantization.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "layercast/error.h"
#include "layercast/model/quantizable_layer.h"

namespace layercast {
namespace {

using Json = nlohmann::json;

[[noreturn]] void Refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "config.json: quantization_config: " + what);
}

const Json* Find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string Text(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  if (value == nullptr) return "";
  if (!value->is_string()) Refuse(std::string(key) + ": expected a string, got " + value->dump());
  return value->get<std::string>();
}

void AddNames(const Json& object, const char* key, std::vector<std::string>& names) {
  const Json* list = Find(object, key);
  if (list == nullptr) return;
  const bool good = list->is_array() && std::ranges::all_of(*list, [](const Json& name) { return name.is_string(); });
  if (!good) Refuse(std::string(key) + ": expected a list of names, got " + list->dump());
  for (const Json& name : *list) names.push_back(name.get<std::string>());
}

// [block rows, block columns]
void ReadBlocks(const Json& blocks, const char* key, QuantizedForm& form) {
  const bool good = blocks.is_array() && blocks.size() == 2 &&
                    std::ranges::all_of(blocks, [](const Json& size) { return size.is_number_integer() && size > 0; });
  if (!good) Refuse(std::string(key) + ": expected two sizes, got " + blocks.dump());
  form.scales = QuantizedForm::Scales::kBlock;
  form.block_rows = blocks[0].get<std::int64_t>();
  form.block_cols = blocks[1].get<std::int64_t>();
}

QuantizedForm FormOfFp8(const Json& config) {
  QuantizedForm form;
  if (const Json* blocks = Find(config, "weight_block_size")) {
    ReadBlocks(*blocks, "weight_block_size", form);
    form.power_of_two = Text(config, "scale_fmt") == "ue8m0";
    form.checkpoint_scale = "weight_scale_inv";
  }
  return form;
}

// One group, of 8-bit floating-point weights; others have no form here.
std::optional<QuantizedForm> FormOfCompressedTensors(const Json& config) {
  const Json* groups = Find(config, "config_groups");
  if (groups == nullptr || !groups->is_object() || groups->size() != 1) return std::nullopt;
  const Json* weights = Find(groups->begin().value(), "weights");
  if (weights == nullptr || Text(*weights, "type") != "float" || weights->value("num_bits", 0) != 8)
    return std::nullopt;
  QuantizedForm form;
  const std::string strategy = Text(*weights, "strategy");
  if (strategy == "tensor") return form;
  if (strategy == "channel") {
    form.scales = QuantizedForm::Scales::kChannel;
    return form;
  }
  const Json* blocks = Find(*weights, "block_structure");
  if (strategy != "block" || blocks == nullptr) return std::nullopt;
  ReadBlocks(*blocks, "block_structure", form);
  return form;
}

// Whether `path` holds the segments of `name`, one after another.
bool HasSegments(std::string_view path, std::string_view name) {
  const std::string framed = "." + std::string(path) + ".";
  return framed.find("." + std::string(name) + ".") != std::string::npos;
}

// '*' stands for any text.
bool MatchesWildcards(std::string_view text, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t begin = star; begin <= text.size(); ++begin) {
    if (MatchesWildcards(text.substr(begin), rest)) return true;
  }
  return false;
}

bool Matches(std::string_view path, const std::string& entry) {
  if (entry.starts_with("re:")) {
    try {
      return std::regex_search(path.begin(), path.end(), std::regex(entry.substr(3)),
                               std::regex_constants::match_continuous);
    } catch (const std::regex_error&) {
      Refuse("'" + entry + "' is not a regular expression");
    }
  }
  if (entry.find('*') != std::string::npos)
    return MatchesWildcards(path, entry) || MatchesWildcards(path, entry + ".*");
  return !entry.empty() && HasSegments(path, entry);
}

// Under the fused layer's own name, or of all its parts.
bool IgnoresLayer(const CheckpointQuantization& quantization, const QuantizableLayer& layer, const std::string& path) {
  if (quantization.Ignores(path)) return true;
  const std::string parent = path.substr(0, path.rfind('.') == std::string::npos ? 0 : path.rfind('.') + 1);
  std::string ignored;
  std::string kept;
  for (const ShardName& shard : layer.shard_names()) {
    const std::string part = parent + std::string(shard.checkpoint_name);
    (quantization.Ignores(part) ? ignored : kept) = part;
  }
  if (ignored.empty() || kept.empty()) return !ignored.empty();
  Refuse("some but not all parts of " + path + " are quantized: " + kept + " is, " + ignored +
         " is ignored; a fused layer has one precision");
}

void ApplyBelow(const CheckpointQuantization& quantization, Module& module, const std::string& path) {
  if (auto* layer = dynamic_cast<QuantizableLayer*>(&module)) {
    if (IgnoresLayer(quantization, *layer, path)) {
      layer->SetQuantization(false, std::nullopt);
    } else {
      layer->SetQuantization(true, quantization.form);
    }
  }
  for (const auto& [name, child] : module.children()) {
    ApplyBelow(quantization, *child, path.empty() ? name : path + "." + name);
  }
}

}  // namespace

CheckpointQuantization CheckpointQuantization::Parse(std::string_view config_json) {
  CheckpointQuantization quantization;
  const Json root = Json::parse(config_json, nullptr, false);
  if (!root.is_object()) return quantization;
  const Json* config = Find(root, "quantization_config");
  if (config == nullptr) return quantization;
  if (!config->is_object()) Refuse("expected an object, got " + config->dump());
  quantization.method = Text(*config, "quant_method");
  if (quantization.method == "fp8") {
    quantization.form = FormOfFp8(*config);
  } else if (quantization.method == "compressed-tensors") {
    quantization.form = FormOfCompressedTensors(*config);
  } else if (quantization.method == "modelopt" && Text(*config, "quant_algo") == "FP8") {
    quantization.form = QuantizedForm{};
  } else if (quantization.method == "fbgemm_fp8") {
    quantization.form = QuantizedForm{.scales = QuantizedForm::Scales::kChannel};
  }
  for (const char* key : {"ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules"}) {
    AddNames(*config, key, quantization.ignored);
  }
  return quantization;
}

bool CheckpointQuantization::Ignores(std::string_view path) const {
  return std::ranges::any_of(ignored, [&](const std::string& entry) { return Matches(path, entry); });
}

void CheckpointQuantization::ApplyTo(Module& root) const {
  if (!method.empty()) ApplyBelow(*this, root, "");
}

}  // namespace layercast
