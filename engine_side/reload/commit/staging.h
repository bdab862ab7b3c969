// The staged copy: every kernel tensor of the next version, processed but not yet visible to the engine. Tensors are
// staged in memory of the kind that their captured buffers are in. Those of layers that an engine on a device keeps in
// host memory are processed on the device as well, and then staged in host memory. Used by the committer of `staged`.
#pragma once

#include <array>
#include <map>
#include <span>

#include "engine_side/reload/commit/place.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_sink.h"

namespace layercast {

// Allocated once, one block in each kind of memory, and kept. Resource; one thread at a time. What it borrows must
// outlive it.
class Staging final : public LayerSink {
 public:
  // `work` is where layers are processed.
  Staging(const KernelLayout& layout, Place& work);

  void Open(std::span<const KernelTensor> tensors) override;
  std::span<std::byte> BytesOf(const KernelTensor& tensor) const override;
  void Close(std::span<const KernelTensor> tensors) override;
  // Frees what is open.
  void Drop() { scratch_.clear(); }

  // The staged bytes of a closed tensor. They are there once everything up to its Close is done.
  std::span<std::byte> Staged(const KernelTensor& tensor) const;

 private:
  bool IsProcessedHere(const KernelTensor& tensor) const { return work_.Holds(tensor.destination); }

  const KernelLayout& layout_;
  Place& work_;
  std::array<Buffer, 2> blocks_;           // by kind of memory
  std::map<std::size_t, Buffer> scratch_;  // of open tensors that are staged elsewhere, by index
};

}  // namespace layercast
