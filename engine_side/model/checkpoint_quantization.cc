#include "engine_side/model/checkpoint_quantization.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <utility>

#include "engine_side/model/config_fields.h"
#include "layercast/model/quantizable_layer.h"

namespace layercast {
namespace {

using Json = nlohmann::json;

constexpr const char* kField = "quantization_config";
constexpr std::int64_t kLargestBlock = 0x7FFFFFFF;

[[noreturn]] void Refuse(const std::string& what) { ConfigFields::Refuse(std::string(kField) + ": " + what); }

// [block rows, block columns]
void ReadBlocks(const ConfigFields& fields, const char* key, QuantizedForm& form) {
  const std::vector<std::int64_t> sizes = fields.Integers(key);
  const bool good = sizes.size() == 2 && std::ranges::min(sizes) > 0 && std::ranges::max(sizes) <= kLargestBlock;
  if (!good) fields.Refuse(key, "two sizes", *fields.Find(key));
  form.scales = QuantizedForm::Scales::kBlock;
  form.block_rows = sizes[0];
  form.block_cols = sizes[1];
}

QuantizedForm FormOfFp8(const ConfigFields& config) {
  QuantizedForm form;
  if (config.Find("weight_block_size") != nullptr) {
    ReadBlocks(config, "weight_block_size", form);
    form.power_of_two = config.Text("scale_fmt", "") == "ue8m0";
    form.checkpoint_scale = "weight_scale_inv";
  }
  return form;
}

// One group, of 8-bit floating-point weights; others have no form here.
std::optional<QuantizedForm> FormOfCompressedTensors(const ConfigFields& config) {
  const Json* groups = config.Find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->size() != 1) return std::nullopt;
  const std::string group = std::string(kField) + ".config_groups." + groups->begin().key() + ".";
  const ConfigFields only(groups->begin().value(), group);
  const Json* of_weights = only.Find("weights");
  if (of_weights == nullptr) return std::nullopt;
  const ConfigFields weights(*of_weights, group + "weights.");
  if (weights.Text("type", "") != "float" || weights.Integer("num_bits", 1, 64) != 8) return std::nullopt;
  QuantizedForm form;
  const std::string strategy = weights.Text("strategy", "");
  if (strategy == "tensor") return form;
  if (strategy == "channel") {
    form.scales = QuantizedForm::Scales::kChannel;
    return form;
  }
  if (strategy != "block" || weights.Find("block_structure") == nullptr) return std::nullopt;
  ReadBlocks(weights, "block_structure", form);
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
  const auto found = root.find(kField);
  if (found == root.end() || found->is_null()) return quantization;
  const ConfigFields config(*found, std::string(kField) + ".");
  quantization.method = config.Text("quant_method", "");
  if (quantization.method == "fp8") {
    quantization.form = FormOfFp8(config);
  } else if (quantization.method == "compressed-tensors") {
    quantization.form = FormOfCompressedTensors(config);
  } else if (quantization.method == "modelopt" && config.Text("quant_algo", "") == "FP8") {
    quantization.form = QuantizedForm{};
  } else if (quantization.method == "fbgemm_fp8") {
    quantization.form = QuantizedForm{.scales = QuantizedForm::Scales::kChannel};
  }
  for (const char* key : {"ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules"}) {
    std::ranges::copy(config.Texts(key), std::back_inserter(quantization.ignored));
  }
  return quantization;
}

bool CheckpointQuantization::Ignores(std::string_view path) const {
  return std::ranges::any_of(ignored, [&](const std::string& entry) { return Matches(path, entry); });
}

void CheckpointQuantization::ApplyTo(Module& root) const {
  if (method.empty()) return;
  CheckpointQuantization of_tree = *this;
  for (const std::string& entry : ignored) {
    const bool is_name = !entry.empty() && !entry.starts_with("re:");
    if (is_name && root.mapper().Matches(entry)) of_tree.ignored.push_back(root.mapper().Map(entry).name);
  }
  ApplyBelow(of_tree, root, "");
}

}  // namespace layercast
