// Records which captured buffers were written since the last whole version. A process that follows one that died finds
// out here what that one had begun, if the memory outlived it. Used by the committers of `undo` and `in_place`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine_side/reload/layout/kernel_layout.h"
#include "layercast/memory.h"

namespace layercast {

// Holds one byte for each kernel tensor, behind a digest of the layout. Memory that holds no record of this layout
// starts as an empty record. Resource; one thread at a time.
class WriteRecord {
 public:
  WriteRecord(const KernelLayout& layout, MemoryResource& memory);

  // Records that a tensor's captured buffer is about to be written. Must be called before its first byte is written,
  // and after whatever must precede the write.
  void Note(std::size_t tensor);
  bool Has(std::size_t tensor) const;
  bool empty() const;
  void Clear();

 private:
  std::span<std::uint8_t> entries() const;

  Buffer memory_;
};

}  // namespace layercast
