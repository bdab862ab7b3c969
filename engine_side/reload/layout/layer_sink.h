// Where the pipeline leaves a layer's kernel tensors: the staged copy, or the scratch memory of a commit that writes
// layer by layer. The stages that make the tensors know nothing else of the commit.
#pragma once

#include <span>

#include "engine_side/reload/layout/kernel_layout.h"

namespace layercast {

// Resource; one thread only.
class LayerSink {
 public:
  virtual ~LayerSink() = default;
  // To be called before the first byte of these tensors is written. They belong to one layer. What their memory holds
  // is undefined at first.
  virtual void Open(std::span<const KernelTensor> tensors) = 0;
  // The bytes of an open tensor, contiguous and row-major.
  virtual std::span<std::byte> BytesOf(const KernelTensor& tensor) const = 0;
  // To be called when all bytes of the tensors are there and were checked. Nobody asks for them again.
  virtual void Close(std::span<const KernelTensor> tensors) = 0;
};

}  // namespace layercast
