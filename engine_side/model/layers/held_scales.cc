#include "layercast/model/held_scales.h"

#include "layercast/model/attention.h"
#include "layercast/model/quantizable_layer.h"

namespace layercast {

void HoldScales(Module& root, const HeldScales& scales) {
  if (auto* layer = dynamic_cast<QuantizableLayer*>(&root)) layer->HoldInputScales(scales.inputs);
  if (auto* cache = dynamic_cast<KvCacheScales*>(&root)) cache->Hold(scales.kv_cache);
  for (const auto& [name, child] : root.children()) HoldScales(*child, scales);
}

}  // namespace layercast
