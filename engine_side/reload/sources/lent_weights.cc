#include "engine_side/reload/sources/lent_weights.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {

Schedule WholeTensors(const Manifest& manifest, std::uint64_t chunk_bytes) {
  Schedule schedule;
  for (std::uint32_t tensor = 0; tensor < manifest.size(); ++tensor) {
    const auto bytes = static_cast<std::uint64_t>(manifest.entry(tensor).spec.num_bytes());
    for (std::uint64_t offset = 0; offset < bytes; offset += chunk_bytes) {
      const Region region{
          .tensor = tensor, .offset = offset, .row_bytes = std::min(chunk_bytes, bytes - offset), .rows = 1};
      schedule.Add({&region, 1});
    }
  }
  return schedule;
}

LentTensors::LentTensors(const Manifest& manifest, const Schedule& schedule, const KernelLayout& layout,
                         LayerSink& sink, StageWork& work)
    : manifest_(manifest), schedule_(schedule), sink_(sink), work_(work), received_(manifest.size()) {
  std::map<std::string_view, const KernelTensor*> by_name;
  for (const KernelTensor& tensor : layout.tensors()) by_name.emplace(tensor.spec.name, &tensor);
  for (const LaidOutTensor& tensor : manifest.layout()->tensors()) kernel_.push_back(by_name.at(tensor.spec.name));
}

// Opens the tensor in the sink. A tensor without bytes is closed at once, because no chunk follows.
void LentTensors::OnTensor(std::uint32_t tensor, float /*amax*/, const Digest& /*digest*/) {
  if (closed_.contains(tensor)) {
    throw Error(ErrorCode::kCorrupt, Quote(manifest_.entry(tensor).spec.name) + " came twice");
  }
  sink_.Open({kernel_[tensor], 1});
  if (kernel_[tensor]->spec.num_bytes() == 0) Close(tensor);
}

void LentTensors::OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) {
  const Region& region = schedule_.RegionsOf(schedule_.chunks()[chunk]).front();
  const std::span<std::byte> bytes = sink_.BytesOf(*kernel_[region.tensor]);
  work_.Write(regions.front(), bytes.data() + region.offset);
  received_[region.tensor] += region.num_bytes();
  if (received_[region.tensor] == bytes.size()) Close(region.tensor);
}

void LentTensors::Close(std::uint32_t tensor) {
  sink_.Close({kernel_[tensor], 1});
  closed_.insert(tensor);
}

void LentTensors::Finish() const {
  for (std::uint32_t tensor = 0; tensor < kernel_.size(); ++tensor) {
    if (closed_.contains(tensor)) continue;
    const TensorSpec& spec = manifest_.entry(tensor).spec;
    throw Error(ErrorCode::kCorrupt, Quote(spec.name) + ": expected " + std::to_string(spec.num_bytes()) +
                                         " bytes, got " + std::to_string(received_[tensor]));
  }
}

}  // namespace layercast
