#include "trainer_side/stored_weights.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/store/stored_object.h"

namespace layercast {

Weights WeightsOf(const StoreFolder& folder, const VersionRecord& record) {
  Weights weights;
  weights.config = record.config;
  weights.walk = [folder, manifest = record.manifest](std::span<const std::string> order) {
    if (!order.empty()) throw Error(ErrorCode::kFailedPrecondition, "what a store has comes in its own order");
    return MakeWeightsIterator([folder, manifest, next = std::uint32_t{0}]() mutable -> std::optional<NamedTensor> {
      if (next == manifest.size()) return std::nullopt;
      const auto entry = manifest.entry(next);
      const auto object =
          std::make_shared<const StoredObject>(folder.Object(entry.digest), entry.digest, BytesOf(manifest, next++));
      return NamedTensor{entry.spec.name,
                         {.dtype = entry.spec.dtype, .shape = entry.spec.shape, .data = object->bytes().data()},
                         object};
    });
  };
  return weights;
}

}  // namespace layercast
