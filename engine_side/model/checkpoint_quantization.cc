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
constexpr const char* kModelOptField = "hf_quant_config.json: quantization";
constexpr std::int64_t kLargestBlock = 0x7FFFFFFF;

[[noreturn]] void Refuse(const std::string& what) { ConfigFields::Refuse(std::string(kField) + ": " + what); }

char UpperCase(char letter) { return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter; }

// [block rows, block columns]
void ReadBlocks(const ConfigFields& fields, const char* key, QuantizedForm& form) {
  const std::vector<std::int64_t> sizes = fields.Integers(key);
  const bool good = sizes.size() == 2 && std::ranges::min(sizes) > 0 && std::ranges::max(sizes) <= kLargestBlock;
  if (!good) fields.Refuse(key, "two sizes", *fields.Find(key));
  form.scales = QuantizedForm::Scales::kBlock;
  form.block_rows = sizes[0];
  form.block_cols = sizes[1];
}

// A form, or the field that has none here.
struct FormOrWhyNot {
  std::optional<QuantizedForm> form{};
  std::string why_not{};
};

FormOrWhyNot WhyNot(const ConfigFields& fields, const char* key, const std::string& expected) {
  const Json* got = fields.Find(key);
  return {.why_not = fields.Mismatch(key, expected, got == nullptr ? Json() : *got)};
}

FormOrWhyNot FormOfFp8(const ConfigFields& config) {
  QuantizedForm form;
  if (config.Find("weight_block_size") != nullptr) {
    ReadBlocks(config, "weight_block_size", form);
    form.power_of_two = config.Text("scale_fmt", "") == "ue8m0";
    form.checkpoint_scale = "weight_scale_inv";
  }
  return {form};
}

FormOrWhyNot FormOfCompressedFloats(const ConfigFields& weights) {
  QuantizedForm form;
  const std::string strategy = weights.Text("strategy", "");
  if (strategy == "block") {
    if (weights.Find("block_structure") == nullptr) return WhyNot(weights, "block_structure", "two sizes");
    ReadBlocks(weights, "block_structure", form);
  } else if (strategy == "channel") {
    form.scales = QuantizedForm::Scales::kChannel;
  } else if (strategy != "tensor") {
    return WhyNot(weights, "strategy", "'tensor', 'channel' or 'block'");
  }
  return {form};
}

// `sizes`: what may have "group_size", which has to be that of `form`'s blocks.
FormOrWhyNot OfGroups(QuantizedForm form, const ConfigFields& sizes) {
  if (sizes.Integer("group_size", 1, kLargestBlock).value_or(form.block_cols) != form.block_cols) {
    return WhyNot(sizes, "group_size", std::to_string(form.block_cols));
  }
  return {std::move(form)};
}

// `format`: where it is said how the codes are stored, of the group or of all.
FormOrWhyNot FormOfCompressedIntegers(const ConfigFields& weights, const ConfigFields& format) {
  const std::string stored = format.Text("format", "int-quantized");
  if (stored != "int-quantized" && stored != "naive-quantized") {
    return WhyNot(format, "format", "'int-quantized', a code in a byte");
  }
  if (weights.Text("strategy", "") != "channel") return WhyNot(weights, "strategy", "'channel' of 8-bit integers");
  if (!weights.Flag("symmetric", true)) return WhyNot(weights, "symmetric", "true");
  return {QuantizedForm{.scales = QuantizedForm::Scales::kChannel, .codes = DType::kI8}};
}

// One group, of 8-bit weights or NVFP4's; others have no form here.
FormOrWhyNot FormOfCompressedTensors(const ConfigFields& config) {
  const Json* groups = config.Find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->size() != 1) {
    return WhyNot(config, "config_groups", "one group");
  }
  const std::string name = std::string(kField) + ".config_groups." + groups->begin().key() + ".";
  const ConfigFields group(groups->begin().value(), name);
  const Json* of_weights = group.Find("weights");
  if (of_weights == nullptr) return WhyNot(group, "weights", "an object");
  const ConfigFields weights(*of_weights, name + "weights.");
  const std::string type = weights.Text("type", "");
  const auto bits = weights.Integer("num_bits", 1, 64);
  if (type == "float" && bits == 4) {
    if (weights.Text("strategy", "") != "tensor_group") return WhyNot(weights, "strategy", "'tensor_group' of e2m1");
    return OfGroups(QuantizedForm::Nvfp4(), weights);
  }
  if (bits != 8) return WhyNot(weights, "num_bits", type == "float" ? "8 or 4" : "8");
  if (type == "float") return FormOfCompressedFloats(weights);
  if (type != "int") return WhyNot(weights, "type", "'float' or 'int'");
  return FormOfCompressedIntegers(weights, group.Find("format") == nullptr ? config : group);
}

// ModelOpt writes names that it has no other spelling for in lower case: "fp8_pb_wo".
FormOrWhyNot FormOfModelOpt(const ConfigFields& config) {
  std::string algorithm = config.Text("quant_algo", "");
  std::ranges::transform(algorithm, algorithm.begin(), UpperCase);
  if (algorithm == "FP8") return {QuantizedForm{}};
  if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN") return {QuantizedForm{.scales = QuantizedForm::Scales::kChannel}};
  if (algorithm == "FP8_PB_WO") return OfGroups(QuantizedForm{.scales = QuantizedForm::Scales::kBlock}, config);
  if (algorithm == "MXFP8") return OfGroups(QuantizedForm::Mxfp8(), config);
  if (algorithm == "NVFP4") return OfGroups(QuantizedForm::Nvfp4(), config);
  return WhyNot(config, "quant_algo", "'FP8', 'FP8_PER_CHANNEL_PER_TOKEN', 'FP8_PB_WO', 'MXFP8' or 'NVFP4'");
}

FormOrWhyNot FormOf(const std::string& method, const ConfigFields& config) {
  if (method == "fp8") return FormOfFp8(config);
  if (method == "compressed-tensors") return FormOfCompressedTensors(config);
  if (method == "modelopt") return FormOfModelOpt(config);
  if (method == "mxfp4") return {QuantizedForm::Mxfp4()};
  if (method == "fbgemm_fp8") return {QuantizedForm{.scales = QuantizedForm::Scales::kChannel}};
  return WhyNot(config, "quant_method", "'fp8', 'compressed-tensors', 'modelopt', 'mxfp4' or 'fbgemm_fp8'");
}

std::vector<std::string> AllOf(const std::vector<QuantizableLayer::FusedModules>& way) {
  std::vector<std::string> modules;
  for (const QuantizableLayer::FusedModules& fused : way) std::ranges::copy(fused, std::back_inserter(modules));
  return modules;
}

// What of the layer is ignored, by which entry: it itself, or all its parts, of which one is named. Empty: nothing.
std::string WhatIsIgnored(const IgnoredModules& ignored, const QuantizableLayer& layer, const std::string& path) {
  const auto by_entry = [&](const std::string& module) {
    return module + " (by its entry '" + std::string(ignored.Find(module).value_or("")) + "')";
  };
  if (ignored.empty()) return {};
  if (ignored.Contains(path)) return by_entry(path);
  std::string some;
  for (const std::vector<QuantizableLayer::FusedModules>& way : layer.CheckpointModules(path)) {
    const std::vector<std::string> parts = AllOf(way);
    const auto is_ignored = [&](const std::string& part) { return ignored.Contains(part); };
    const auto left_out = std::ranges::find_if(parts, is_ignored);
    if (left_out == parts.end()) continue;
    const auto kept = std::ranges::find_if_not(parts, is_ignored);
    if (kept == parts.end()) return by_entry(parts.front()) + (parts.size() > 1 ? " and all others of its parts" : "");
    if (some.empty()) some = *kept + " is, " + *left_out + " is ignored";
  }
  if (some.empty()) return {};
  Refuse("some but not all parts of " + path + " are quantized: " + some + "; a fused layer has one precision");
}

void ApplyBelow(const CheckpointQuantization& quantization, const IgnoredModules& ignored, Module& module,
                const std::string& path) {
  if (auto* layer = dynamic_cast<QuantizableLayer*>(&module)) {
    const std::string out = WhatIsIgnored(ignored, *layer, path);
    if (out.empty()) {
      layer->SetQuantization(true, quantization.form, quantization.why_no_form);
    } else {
      layer->SetQuantization(false, std::nullopt, quantization.said_by + " leaves out " + out);
    }
  }
  for (const auto& [name, child] : module.children()) ApplyBelow(quantization, ignored, *child, JoinPath(path, name));
}

}  // namespace

CheckpointQuantization CheckpointQuantization::Parse(std::string_view config_json) {
  CheckpointQuantization quantization;
  const Json root = Json::parse(config_json, nullptr, false);
  if (!root.is_object()) return quantization;
  const auto found = root.find(kField);
  if (found == root.end() || found->is_null()) return quantization;
  const auto of_modelopt = found->find("quantization");  // as hf_quant_config.json has it, whose weights may be whole
  const bool is_modelopts = of_modelopt != found->end();
  quantization.said_by = is_modelopts ? kModelOptField : kField;
  const ConfigFields config(is_modelopts ? *of_modelopt : *found, quantization.said_by + ".");
  if (is_modelopts && config.Find("quant_algo") == nullptr) return quantization;
  quantization.method = is_modelopts ? "modelopt" : config.Text("quant_method", "");
  FormOrWhyNot found_form = FormOf(quantization.method, config);
  quantization.form = std::move(found_form.form);
  quantization.why_no_form = std::move(found_form.why_not);
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
  ApplyBelow(*this, IgnoredModules(entries), root, "");
}

}  // namespace layercast
