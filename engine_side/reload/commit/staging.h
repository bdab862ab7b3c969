// The staged copy: one block that holds every kernel tensor of the next version, processed but not yet visible to the
// engine. The undo log has the same form. Allocated once and kept. Used by committers. Resource; one thread at a time.
#pragma once

#include <span>

#include "engine_side/reload/layout/layer_sink.h"
#include "layercast/memory.h"
#include "src/base/memory/buffer_for.h"

namespace layercast {

class Staging final : public LayerSink {
 public:
  Staging(const KernelLayout& layout, MemoryResource& memory)
      : memory_(BufferFor("a copy of this rank's weights", memory, static_cast<std::size_t>(layout.staged_bytes()))) {}

  void Open(std::span<const KernelTensor> /*tensors*/) override {}
  std::span<std::byte> BytesOf(const KernelTensor& tensor) const override {
    return memory_.span().subspan(tensor.staging_offset, tensor.num_bytes);
  }
  void Close(std::span<const KernelTensor> /*tensors*/) override {}

 private:
  Buffer memory_;
};

}  // namespace layercast
