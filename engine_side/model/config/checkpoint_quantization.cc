// CheckpointQuantization::Parse.
#include "engine_side/model/config/checkpoint_quantization.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/config/stored_forms.h"

namespace layercast {
namespace {

using Json = nlohmann::json;
using Group = CheckpointQuantization::Group;

constexpr const char* kField = "quantization_config";
constexpr const char* kModelOptField = "hf_quant_config.json: quantization";
constexpr const char* kLinear = "Linear";

// Whether a target is a class. compressed-tensors lists names of modules and of classes side by side: "lm_head",
// "Linear".
bool NamesAClass(const std::string& target) {
  return !target.empty() && target[0] >= 'A' && target[0] <= 'Z' && target.find('.') == std::string::npos;
}

std::vector<Group> GroupsOfCompressedTensors(const ConfigFields& config) {
  std::vector<Group> groups;
  for (const auto& [name, of_group] : config.Find("config_groups")->items()) {
    Group& group = groups.emplace_back();
    group.said_by = std::string(kField) + ".config_groups." + name;
    const ConfigFields fields(of_group, group.said_by + ".");
    const std::vector<std::string> targets = fields.Texts("targets");
    std::ranges::copy_if(targets, std::back_inserter(group.classes), NamesAClass);
    std::ranges::remove_copy_if(targets, std::back_inserter(group.modules), NamesAClass);
    if (targets.empty()) group.classes.emplace_back(kLinear);
    StoredForm found = FormOfGroup(fields, group.said_by + ".", config);
    group.form = std::move(found.form);
    group.why_no_form = std::move(found.why_not);
  }
  return groups;
}

// ModelOpt's configuration says for each module how it is quantized. Modules of the same form become one group here.
std::vector<Group> GroupsOfModelOpt(const ConfigFields& config, const std::string& said_by) {
  const std::string field = said_by + ".quantized_layers";
  std::map<std::string, Group> groups;  // keyed by what the file says about the module
  for (const auto& [name, of_module] : config.Find("quantized_layers")->items()) {
    const auto [group, is_new] = groups.try_emplace(of_module.dump());
    group->second.modules.push_back(name);
    if (!is_new) continue;
    StoredForm found = FormOfModelOpt(ConfigFields(of_module, field + "." + name + "."));
    group->second.said_by = field;
    group->second.form = std::move(found.form);
    group->second.why_no_form = std::move(found.why_not);
  }
  std::vector<Group> all;
  for (auto& [said, group] : groups) all.push_back(std::move(group));
  return all;
}

// The field that holds the groups; empty if this method has none.
std::string GroupsField(const std::string& method, const ConfigFields& config) {
  if (method == "compressed-tensors") return "config_groups";
  return method == "modelopt" && ModelOptAlgorithm(config) == "MIXED_PRECISION" ? "quantized_layers" : "";
}

StoredForm OneForm(CheckpointQuantization& quantization, const ConfigFields& config) {
  const std::string field = GroupsField(quantization.method, config);
  if (field.empty()) return FormOf(quantization.method, config);
  const Json* groups = config.Find(field);
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    return {.why_not = config.Mismatch(field, "an object of groups", groups == nullptr ? Json() : *groups)};
  }
  std::vector<Group> found = quantization.method == "modelopt" ? GroupsOfModelOpt(config, quantization.said_by)
                                                               : GroupsOfCompressedTensors(config);
  if (found.size() == 1 && std::ranges::find(found[0].classes, kLinear) != found[0].classes.end()) {
    // A single group that covers everything becomes the form of all layers.
    return {std::move(found[0].form), std::move(found[0].why_no_form)};
  }
  quantization.groups = std::move(found);
  return {};
}

bool Transforms(const Json& config) {
  const auto groups = config.find("config_groups");
  return groups == config.end() ? !config.empty() : !groups->empty();
}

// Refuses what would turn the weights that the groups describe, and those of layers in no group, into other weights.
void CheckCompressedTensors(const ConfigFields& config) {
  const Json* transforms = config.Find("transform_config");
  if (transforms != nullptr && Transforms(*transforms)) {
    config.Refuse("transform_config", "none, as nothing transforms weights or activations", *transforms);
  }
  const Json* sparsity = config.Find("sparsity_config");
  if (sparsity == nullptr) return;
  const ConfigFields fields(*sparsity, std::string(kField) + ".sparsity_config.");
  const std::string format = fields.Text("format", "dense");
  if (format != "dense") fields.Refuse("format", "'dense'", format);
}

}  // namespace

CheckpointQuantization CheckpointQuantization::Parse(std::string_view config_json) {
  CheckpointQuantization quantization;
  const Json root = Json::parse(config_json, nullptr, false);
  if (!root.is_object()) return quantization;
  const auto found = root.find(kField);
  if (found == root.end() || found->is_null()) return quantization;
  // ModelDescription puts the whole hf_quant_config.json here. Such a file may also say that nothing is quantized.
  const auto of_modelopt = found->find("quantization");
  const bool is_modelopts = of_modelopt != found->end();
  quantization.said_by = is_modelopts ? kModelOptField : kField;
  const ConfigFields config(is_modelopts ? *of_modelopt : *found, quantization.said_by + ".");
  if (is_modelopts && config.Find("quant_algo") == nullptr) return quantization;
  quantization.method = is_modelopts ? "modelopt" : config.Text("quant_method", "");
  if (quantization.method.starts_with("modelopt_")) quantization.method = "modelopt";  // "modelopt_mixed"
  if (quantization.method == "compressed-tensors") CheckCompressedTensors(config);
  StoredForm of_all = OneForm(quantization, config);
  quantization.form = std::move(of_all.form);
  quantization.why_no_form = std::move(of_all.why_not);
  for (const char* key : {"ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules"}) {
    std::ranges::copy(config.Texts(key), std::back_inserter(quantization.ignored));
  }
  return quantization;
}

}  // namespace layercast
