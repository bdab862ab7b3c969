// Where the pipeline leaves a layer's kernel tensors: the staged copy, or the scratch of a commit that writes layer by
// layer. The stages that make them know no more of the commit than this.
#pragma once

#include <span>

#include "engine_side/reload/kernel_layout.h"

namespace layercast {

// One thread only.
class LayerSink {
 public:
  virtual ~LayerSink() = default;
  // Before the first byte of these tensors, which belong to one layer. What their memory holds is undefined.
  virtual void Open(std::span<const KernelTensor> tensors) = 0;
  // Of an open tensor: contiguous, row-major.
  virtual std::span<std::byte> BytesOf(const KernelTensor& tensor) const = 0;
  // All of their bytes are there, and were checked. Nothing asks for them again.
  virtual void Close(std::span<const KernelTensor> tensors) = 0;
};

}  // namespace layercast
