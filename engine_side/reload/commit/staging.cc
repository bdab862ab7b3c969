#include "engine_side/reload/commit/staging.h"

namespace layercast {

Staging::Staging(const KernelLayout& layout, Place& work) : layout_(layout), work_(work) {
  for (const Device::Kind kind : {Device::Kind::kCuda, Device::Kind::kHost}) {
    const auto bytes = static_cast<std::size_t>(layout.staged_bytes(kind));
    if (kind != work.kind() && bytes == 0) continue;
    blocks_[static_cast<std::size_t>(kind)] =
        work.Take("a copy of this rank's weights", kind == work.kind() ? work.memory().kept : work.memory().log, bytes);
  }
}

void Staging::Open(std::span<const KernelTensor> tensors) {
  for (const KernelTensor& tensor : tensors) {
    if (IsProcessedHere(tensor)) continue;
    scratch_[layout_.IndexOf(tensor)] = Buffer(work_.memory().layer, tensor.num_bytes);
  }
}

std::span<std::byte> Staging::BytesOf(const KernelTensor& tensor) const {
  return IsProcessedHere(tensor) ? Staged(tensor) : scratch_.at(layout_.IndexOf(tensor)).span();
}

void Staging::Close(std::span<const KernelTensor> tensors) {
  for (const KernelTensor& tensor : tensors) {
    if (IsProcessedHere(tensor)) continue;
    work_.Copy(BytesOf(tensor).data(), Staged(tensor).data(), tensor.num_bytes);
    scratch_.erase(layout_.IndexOf(tensor));
  }
}

std::span<std::byte> Staging::Staged(const KernelTensor& tensor) const {
  const Buffer& block = blocks_[static_cast<std::size_t>(tensor.destination.device.kind)];
  return block.span().subspan(tensor.staging_offset, tensor.num_bytes);
}

}  // namespace layercast
