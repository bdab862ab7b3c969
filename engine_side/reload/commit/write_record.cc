#include "engine_side/reload/commit/write_record.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace layercast {

WriteRecord::WriteRecord(const KernelLayout& layout, MemoryResource& memory)
    : memory_(memory, sizeof(Digest) + layout.tensors().size()) {
  const Digest digest = DigestOf(layout);
  if (std::memcmp(memory_.data(), &digest, sizeof(digest)) == 0) return;
  Clear();
  std::memcpy(memory_.data(), &digest, sizeof(digest));
}

std::span<std::uint8_t> WriteRecord::entries() const {
  const std::span<std::byte> bytes = memory_.span().subspan(sizeof(Digest));
  return {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
}

// A killed process has executed its stores in program order, as far as it got. So it is enough to keep the compiler
// from moving other stores across this one.
void WriteRecord::Note(std::size_t tensor) {
  std::atomic_ref(entries()[tensor]).store(1);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

bool WriteRecord::Has(std::size_t tensor) const { return entries()[tensor] != 0; }

bool WriteRecord::empty() const {
  return std::ranges::all_of(entries(), [](std::uint8_t entry) { return entry == 0; });
}

void WriteRecord::Clear() { std::ranges::fill(entries(), std::uint8_t{0}); }

}  // namespace layercast
