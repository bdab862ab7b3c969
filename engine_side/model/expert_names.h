// Every name that checkpoints and engines have for parts of experts, below the module that holds them. Used by
// FusedMoE.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/model/moe.h"
#include "layercast/model/quantized_form.h"

namespace layercast {

// What a name says. Value.
struct ExpertName {
  using Shards = std::uint8_t;  // a set of
  static constexpr Shards kW1 = 1, kW3 = 2, kW2 = 4, kW13 = kW1 | kW3;

  std::optional<std::int64_t> expert;  // nullopt: all, stacked
  Shards shards = 0;
  bool bias = false;
  bool scale = false;
  bool global_scale = false;  // the second one of NVFP4
  bool reciprocal = false;    // one divided by that
  bool blocks = false;        // of MXFP4: [.., columns / 32, 16]
  ElementOrder order = {};
};

// Value; what it refers to outlives it.
class ExpertNames {
 public:
  // `form`: of the codes that come as they are; null: none do.
  ExpertNames(const ExpertOptions& options, const QuantizedForm* form) : options_(options), form_(form) {}

  // nullopt: no name of a part of an expert, or not of these options.
  std::optional<ExpertName> Parse(std::string_view name) const;
  // What the stacked tensor is called that fills such a parameter: "gate_up_proj_bias".
  std::string StackedName(bool down, bool bias, bool scale) const;
  // The modules that experts below `path` are to checkpoints, in each way that they have.
  std::vector<std::vector<QuantizableLayer::FusedModules>> CheckpointModules(std::string_view path) const;

 private:
  bool TakesBlocks() const { return form_ != nullptr && form_->in_blocks; }
  std::optional<ExpertName> ParseOne(std::string_view name) const;
  std::optional<ExpertName> ParseStacked(std::string_view name) const;

  const ExpertOptions& options_;
  const QuantizedForm* form_;
};

}  // namespace layercast
