#include "src/session/offer/known_amax.h"

namespace layercast {
namespace {

constexpr std::size_t kMostValues = 16U << 20;  // 64 MiB: the rows of a hundred layers of the largest models

}  // namespace

std::vector<float> KnownAmax::Of(const OfferedVersion& version, const AmaxRequest& request, WorkerPool& pool,
                                 DeviceBytes* device) {
  const std::uint64_t offer = version.offer().id;
  const Request key{request.tensor, request.kept, request.read_as};
  if (const auto known = offers_.find(offer); known != offers_.end()) {
    if (const auto values = known->second.find(key); values != known->second.end()) return values->second;
  }
  const TensorSpec spec = AsRead(version.manifest().entry(request.tensor).spec, request);
  const Device& where = version.offer().device;
  const std::byte* const bytes = version.offer().tensors[request.tensor].data;
  std::vector<float> values = where.kind == Device::Kind::kHost ? AmaxOver(spec, bytes, request.kept, pool)
                                                                : device->AmaxOver(where, spec, bytes, request.kept);
  MakeRoom(values.size());
  if (values_ + values.size() <= kMostValues) {
    values_ += values.size();
    offers_[offer].emplace(key, values);
  }
  return values;
}

// Forgets the magnitudes of the oldest offers, which receivers are done with first.
void KnownAmax::MakeRoom(std::size_t values) {
  while (offers_.size() > 1 && values_ + values > kMostValues) {
    for (const auto& [_, known] : offers_.begin()->second) values_ -= known.size();
    offers_.erase(offers_.begin());
  }
}

}  // namespace layercast
