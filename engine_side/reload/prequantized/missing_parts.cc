#include "engine_side/reload/prequantized/missing_parts.h"

#include <algorithm>
#include <cstddef>

#include "engine_side/model/naming/path.h"

namespace layercast {
namespace {

using Part = QuantizedLayer::Part;

class Check {
 public:
  Check(const QuantizedLayer& layer, std::span<const TensorSpec> specs,
        const std::unordered_map<std::string_view, std::uint32_t>& index_of)
      : layer_(layer), specs_(specs), index_of_(index_of) {
    for (const Part& part : layer.parts) {
      part_of_.emplace(part.module, &part);
      ++count_in_[part.fused_in];
    }
  }

  // Says what is missing of a fused module. Empty if it is whole, or not there at all. Checkpoints may name its parts
  // in several ways side by side ("gate_proj", "w3"). It is whole if it has as many parts as the way in which one of
  // them is named.
  std::string WhatIsMissing(const QuantizableLayer::FusedModules& fused) const {
    const auto is_there = [&](const std::string& module) { return part_of_.contains(module); };
    const auto found = std::ranges::find_if(fused, is_there);
    if (found == fused.end()) return {};
    const Part& part = *part_of_.at(*found);
    if (count_in_.at(part.fused_in) >= fused.size()) return {};
    std::string missing;
    for (const std::string& module : fused) {
      if (!is_there(module)) AddMissing(part, module, missing);
    }
    if (missing.empty()) return {};  // the other parts are in full precision
    return "layer " + layer_.path + ": '" + specs_[part.weight].name + "' is there without " + missing;
  }

 private:
  // Appends the tensors of `module` that are not there, named in the way in which those of `part` are.
  void AddMissing(const Part& part, std::string_view module, std::string& missing) const {
    const std::string_view own = ParentPath(part.name);
    const std::string other = JoinPath(ParentPath(own), LastName(module));
    std::vector<std::uint32_t> tensors = {part.weight, part.scale};
    if (layer_.layer->quantized_form()->has_global_scale) tensors.push_back(part.global_scale);
    for (const std::uint32_t tensor : tensors) {
      const std::string name = other + specs_[tensor].name.substr(own.size());
      if (!index_of_.contains(name)) missing += (missing.empty() ? "'" : ", '") + name + "'";
    }
  }

  const QuantizedLayer& layer_;
  const std::span<const TensorSpec> specs_;
  const std::unordered_map<std::string_view, std::uint32_t>& index_of_;
  std::unordered_map<std::string_view, const Part*> part_of_;
  std::unordered_map<std::string_view, std::size_t> count_in_;
};

}  // namespace

std::vector<std::string> MissingParts(const QuantizedLayer& layer, std::span<const TensorSpec> specs,
                                      const std::unordered_map<std::string_view, std::uint32_t>& index_of) {
  const Check check(layer, specs, index_of);
  std::vector<std::string> sentences;
  for (const auto& way : layer.layer->CheckpointModules(layer.path)) {
    for (const QuantizableLayer::FusedModules& fused : way) {
      std::string sentence = check.WhatIsMissing(fused);
      if (!sentence.empty()) sentences.push_back(std::move(sentence));
    }
  }
  return sentences;
}

}  // namespace layercast
