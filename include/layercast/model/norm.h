// Normalization layers.
#pragma once

#include <cstdint>

#include "layercast/export.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/module.h"

namespace layercast {

// "weight" [size], whole on every rank: x / sqrt(mean(x^2) + epsilon), times what the context's style says.
class LAYERCAST_PUBLIC RMSNorm final : public Module {
 public:
  RMSNorm(const LayerContext& context, std::int64_t size, double epsilon = 1e-6);
  double epsilon() const { return epsilon_; }
  NormStyle style() const { return style_; }

 private:
  double epsilon_;
  NormStyle style_;
};

}  // namespace layercast
