#include "layercast/model/norm.h"

namespace layercast {

RMSNorm::RMSNorm(const LayerContext& context, std::int64_t size, double epsilon)
    : Module("RMSNorm"), epsilon_(epsilon), style_(context.norm) {
  AddParameter({{"weight", context.dtype, {size}}, ShardAxis::kNone, false, {}});
}

}  // namespace layercast
