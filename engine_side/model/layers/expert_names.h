// Parses and makes every name that checkpoints and engines use for parts of experts, relative to the module that holds
// the experts. Used by FusedMoE.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/model/moe.h"
#include "layercast/model/quantized_form.h"

namespace layercast {

// What the name of an expert's tensor says. Value.
struct ExpertName {
  using Shards = std::uint8_t;  // a set of the bits below
  static constexpr Shards kW1 = 1, kW3 = 2, kW2 = 4, kW13 = kW1 | kW3;

  std::optional<std::int64_t> expert;  // nullopt: all experts, stacked
  Shards shards = 0;
  bool bias = false;
  bool scale = false;
  bool global_scale = false;  // the second-level scale of NVFP4
  bool reciprocal = false;    // the tensor holds 1 / global scale
  bool blocks = false;        // codes in MXFP4's blocks: [.., columns / 32, 16]
  ElementOrder order = {};
};

// Value. The options and the form that it is given must outlive it.
class ExpertNames {
 public:
  // `form` is the form of the codes that the layer takes as they are; null if it takes none.
  ExpertNames(const ExpertOptions& options, const QuantizedForm* form) : options_(options), form_(form) {}

  // nullopt if `name` is not the name of a part of an expert, or not one that these options allow.
  std::optional<ExpertName> Parse(std::string_view name) const;
  // The name of the stacked tensor that fills the parameter with these properties: "gate_up_proj_bias".
  std::string StackedName(bool down, bool bias, bool scale) const;
  // The modules that make up the experts below `path` in a checkpoint, one list for each naming that checkpoints use.
  std::vector<std::vector<QuantizableLayer::FusedModules>> CheckpointModules(std::string_view path) const;

 private:
  bool TakesBlocks() const { return form_ != nullptr && form_->in_blocks; }
  std::optional<ExpertName> ParseOne(std::string_view name) const;
  std::optional<ExpertName> ParseStacked(std::string_view name) const;

  const ExpertOptions& options_;
  const QuantizedForm* form_;
};

}  // namespace layercast
