// Normalization layers.
#pragma once

#include <cstdint>

#include "layercast/export.h"
#include "layercast/model/linear.h"

namespace layercast {

// "weight" [size], whole on every rank.
class LAYERCAST_PUBLIC RMSNorm final : public Module {
 public:
  RMSNorm(const LayerContext& context, std::int64_t size);
};

}  // namespace layercast
