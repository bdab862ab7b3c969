#include "layercast/model/norm.h"

namespace layercast {

RMSNorm::RMSNorm(const LayerContext& context, std::int64_t size) : Module("RMSNorm") {
  AddParameter({{"weight", context.dtype, {size}}, ShardAxis::kNone, false, {}});
}

}  // namespace layercast
