#include "engine_side/model/checkpoint_quantization.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine_side/model/config_fields.h"
#include "engine_side/model/ignored_modules.h"
#include "engine_side/model/path.h"
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

// Under the fused layer's own name, or of all its parts.
bool IgnoresLayer(const IgnoredModules& ignored, const QuantizableLayer& layer, const std::string& path) {
  if (ignored.empty()) return false;
  if (ignored.Contains(path)) return true;
  std::string some;
  for (const std::vector<std::string>& parts : layer.CheckpointModules(path)) {
    const auto is_ignored = [&](const std::string& part) { return ignored.Contains(part); };
    const auto left_out = std::ranges::find_if(parts, is_ignored);
    if (left_out == parts.end()) continue;
    const auto kept = std::ranges::find_if_not(parts, is_ignored);
    if (kept == parts.end()) return true;
    if (some.empty()) some = *kept + " is, " + *left_out + " is ignored";
  }
  if (some.empty()) return false;
  Refuse("some but not all parts of " + path + " are quantized: " + some + "; a fused layer has one precision");
}

void ApplyBelow(const std::optional<QuantizedForm>& form, const IgnoredModules& ignored, Module& module,
                const std::string& path) {
  if (auto* layer = dynamic_cast<QuantizableLayer*>(&module)) {
    if (IgnoresLayer(ignored, *layer, path)) {
      layer->SetQuantization(false, std::nullopt);
    } else {
      layer->SetQuantization(true, form);
    }
  }
  for (const auto& [name, child] : module.children()) ApplyBelow(form, ignored, *child, JoinPath(path, name));
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
  } else if (quantization.method == "mxfp4") {
    quantization.form = QuantizedForm::Mxfp4();
  } else if (quantization.method == "fbgemm_fp8") {
    quantization.form = QuantizedForm{.scales = QuantizedForm::Scales::kChannel};
  }
  for (const char* key : {"ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules"}) {
    std::ranges::copy(config.Texts(key), std::back_inserter(quantization.ignored));
  }
  return quantization;
}

void CheckpointQuantization::ApplyTo(Module& root) const {
  if (method.empty()) return;
  std::vector<std::string> entries = ignored;
  for (const std::string& entry : ignored) {
    const bool is_name = !entry.empty() && !entry.starts_with("re:");
    if (is_name && root.mapper().Matches(entry)) entries.push_back(root.mapper().Map(entry).name);
  }
  ApplyBelow(form, IgnoredModules(entries), root, "");
}

}  // namespace layercast
