// The staged copy: one block that holds every kernel tensor of the next version, processed and not yet visible.
// Allocated at the first reload and kept. Resource; one thread at a time.
#pragma once

#include <span>

#include "engine_side/reload/kernel_layout.h"
#include "layercast/memory.h"
#include "layercast/version.h"

namespace layercast {

class Staging {
 public:
  Staging(const KernelLayout& layout, MemoryResource& memory)
      : memory_(memory, static_cast<std::size_t>(layout.staged_bytes())) {}

  std::span<std::byte> BytesOf(const KernelTensor& tensor) const {
    return memory_.span().subspan(tensor.staging_offset, static_cast<std::size_t>(tensor.spec.num_bytes()));
  }
  // What CapturedBuffers::ServedDigest will say once all of this is committed.
  Digest DigestOfAll(const KernelLayout& layout) const;

 private:
  Buffer memory_;
};

}  // namespace layercast
