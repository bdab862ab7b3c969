// How the tensors of LoRA adapters are called in a version, which may have a base and several adapters:
// "adapters/NAME/" before the name that the adapter itself has. Used where versions are made, and where they are taken.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/base/utf8.h"

namespace layercast {

inline constexpr std::string_view kAdaptersPrefix = "adapters/";
// What is called so within an adapter is its configuration, as text (u8).
inline constexpr std::string_view kAdapterConfigTensor = "config";

// A tensor of an adapter. Value; views of the whole name.
struct AdapterTensorName {
  std::string_view adapter;  // "policy"
  std::string_view tensor;   // "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"

  // nullopt: the tensor is no adapter's.
  static std::optional<AdapterTensorName> Of(std::string_view name) {
    if (!name.starts_with(kAdaptersPrefix)) return std::nullopt;
    name.remove_prefix(kAdaptersPrefix.size());
    const std::size_t slash = name.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    return AdapterTensorName{name.substr(0, slash), name.substr(slash + 1)};
  }

  // Why a base does not take it.
  std::string SkipRule() const { return "it is of the adapter " + Quote(adapter); }
  std::string Whole() const {
    std::string whole(kAdaptersPrefix);
    return whole.append(adapter).append("/").append(tensor);
  }
};

}  // namespace layercast
