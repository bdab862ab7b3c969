// With ensure_weight_tying, a head and an embedding share their factors: what one has is the other's, transposed. The
// file has both. Used by the survey of an adapter, and by whoever reads its bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "layercast/adapter_config.h"
#include "layercast/tensor.h"
#include "src/adapter/adapter_tensors.h"

namespace layercast {

// The embedding and the head whose factors are tied; null where there is none, or nothing is tied. They live as long as
// `tensors`.
std::pair<const AdapterModule*, const AdapterModule*> TiedModules(const AdapterTensors& tensors,
                                                                  const AdapterConfig& config);

// `read` gives a tensor, in host memory, by its index in the specs. Throws kUnsupported, naming both tensors, if tied
// factors differ.
void CheckTiedFactors(const AdapterTensors& tensors, const AdapterConfig& config,
                      const std::function<NamedTensor(std::uint32_t)>& read);

}  // namespace layercast
