// The staged copy of an engine on a device: kernel tensors are staged where their captured buffers are. Those of layers
// that the engine keeps in host memory are processed in device memory as well, and then staged in host memory. Used by
// the committer of `staged` on a device.
#pragma once

#include <map>
#include <span>

#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_sink.h"
#include "engine_side/reload/work/device_work.h"

namespace layercast {

// Allocated once and kept. Resource; one thread only. What it borrows must outlive it.
class DeviceStaging final : public LayerSink {
 public:
  DeviceStaging(const KernelLayout& layout, DeviceWork& work);

  void Open(std::span<const KernelTensor> tensors) override;
  std::span<std::byte> BytesOf(const KernelTensor& tensor) const override;
  void Close(std::span<const KernelTensor> tensors) override;
  // Frees what is open.
  void Drop() { scratch_.clear(); }

  // The staged bytes of a closed tensor, on the device or in host memory. They are there once the stream has reached
  // its Close.
  std::span<std::byte> Staged(const KernelTensor& tensor) const;

 private:
  const KernelLayout& layout_;
  DeviceWork& work_;
  Buffer on_device_;
  Buffer on_host_;                         // pinned
  std::map<std::size_t, Buffer> scratch_;  // of open tensors that are staged on the host, by index
};

}  // namespace layercast
