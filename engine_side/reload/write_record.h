// Which captured buffers were written since the last whole version. A process that comes after one that died finds out
// here what that one had begun, if the memory outlived it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine_side/reload/kernel_layout.h"
#include "layercast/memory.h"

namespace layercast {

// One byte for each kernel tensor, behind a digest of the layout: memory that holds no record of this layout begins as
// one without entries. Resource; one thread at a time, but for Note, which different tensors' threads may call at once.
class WriteRecord {
 public:
  WriteRecord(const KernelLayout& layout, MemoryResource& memory);

  // Before the first byte is written, and after everything that must have been done by then.
  void Note(std::size_t tensor);
  bool Has(std::size_t tensor) const;
  bool empty() const;
  void Clear();

 private:
  std::span<std::uint8_t> entries() const;

  Buffer memory_;
};

}  // namespace layercast
