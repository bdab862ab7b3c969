#include "engine_side/reload/commit/device_staging.h"

#include "engine_side/reload/layout/captured_on_device.h"

namespace layercast {
namespace {

std::size_t StagedSize(const KernelTensor& tensor) { return tensor.num_bytes; }

}  // namespace

DeviceStaging::DeviceStaging(const KernelLayout& layout, DeviceWork& work)
    : layout_(layout),
      work_(work),
      on_device_(work.stream().memory(), static_cast<std::size_t>(layout.staged_bytes(Device::Kind::kCuda))),
      on_host_(work.stream().pinned(), static_cast<std::size_t>(layout.staged_bytes(Device::Kind::kHost))) {}

void DeviceStaging::Open(std::span<const KernelTensor> tensors) {
  for (const KernelTensor& tensor : tensors) {
    if (IsOnDevice(tensor.destination)) continue;
    scratch_[layout_.IndexOf(tensor)] = Buffer(work_.layer_memory(), StagedSize(tensor));
  }
}

std::span<std::byte> DeviceStaging::BytesOf(const KernelTensor& tensor) const {
  if (IsOnDevice(tensor.destination)) return Staged(tensor);
  return scratch_.at(layout_.IndexOf(tensor)).span().first(StagedSize(tensor));
}

void DeviceStaging::Close(std::span<const KernelTensor> tensors) {
  for (const KernelTensor& tensor : tensors) {
    if (IsOnDevice(tensor.destination)) continue;
    if (StagedSize(tensor) != 0) work_.stream().Copy(BytesOf(tensor).data(), Staged(tensor).data(), StagedSize(tensor));
    scratch_.erase(layout_.IndexOf(tensor));
  }
}

std::span<std::byte> DeviceStaging::Staged(const KernelTensor& tensor) const {
  const Buffer& block = IsOnDevice(tensor.destination) ? on_device_ : on_host_;
  return block.span().subspan(tensor.staging_offset, StagedSize(tensor));
}

}  // namespace layercast
