#include "src/session/known_amax.h"

namespace layercast {
namespace {

constexpr std::size_t kMostValues = 16U << 20;  // 64 MiB: the rows of a hundred layers of the largest models

// The bytes of an offer's tensor, brought to `memory` where it lies on a device.
const std::byte* OnHost(const Offer& offer, std::uint32_t index, DeviceBytes* device, std::vector<std::byte>& memory) {
  const OfferedTensor& tensor = offer.tensors[index];
  if (offer.device.kind == Device::Kind::kHost || tensor.bytes == 0) return tensor.data;
  memory.resize(static_cast<std::size_t>(tensor.bytes));
  device->ToHost(offer.device, tensor.data, memory.size(), memory.data());
  return memory.data();
}

}  // namespace

std::vector<float> KnownAmax::Of(const OfferedVersion& version, const AmaxRequest& request, WorkerPool& pool,
                                 DeviceBytes* device) {
  const std::uint64_t offer = version.offer().id;
  const Request key{request.tensor, request.kept, request.read_as};
  if (const auto known = offers_.find(offer); known != offers_.end()) {
    if (const auto values = known->second.find(key); values != known->second.end()) return values->second;
  }
  const TensorSpec spec = AsRead(version.manifest().entry(request.tensor).spec, request);
  std::vector<std::byte> brought;
  const std::byte* const bytes = OnHost(version.offer(), request.tensor, device, brought);
  std::vector<float> values = AmaxOver(spec, bytes, request.kept, pool);
  MakeRoom(values.size());
  if (values_ + values.size() <= kMostValues) {
    values_ += values.size();
    offers_[offer].emplace(key, values);
  }
  return values;
}

// Of the oldest offers, whose receivers are through with them first.
void KnownAmax::MakeRoom(std::size_t values) {
  while (offers_.size() > 1 && values_ + values > kMostValues) {
    for (const auto& [_, known] : offers_.begin()->second) values_ -= known.size();
    offers_.erase(offers_.begin());
  }
}

}  // namespace layercast
