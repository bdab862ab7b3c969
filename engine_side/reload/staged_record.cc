#include "engine_side/reload/staged_record.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "layercast/error.h"
#include "src/base/digest.h"

namespace layercast {

// As it lies in memory. It is one if its last field is the digest of those before it.
struct StagedRecord::Entry {
  Digest layout;   // of the kernel tensors
  Digest version;  // of its name
  std::uint64_t step;
  Digest bytes;
  Digest seal;

  static Entry Of(const Digest& layout, const Version& version, const Digest& bytes) {
    const std::string name = version.lineage + version.digest.ToHex();
    Entry entry{layout, DigestOf(std::as_bytes(std::span(name))), version.step, bytes, {}};
    entry.seal = entry.Sealed();
    return entry;
  }
  Digest Sealed() const { return DigestOf(std::as_bytes(std::span(this, 1)).first(offsetof(Entry, seal))); }
};

StagedRecord::StagedRecord(const KernelLayout& layout, MemoryResource& memory)
    : layout_(DigestOf(layout)), memory_(memory, sizeof(Entry)) {}

// A process that is killed has executed its stores in order, as far as it got: the compiler alone must be kept from
// moving what comes before and after.
void StagedRecord::Clear() {
  const Entry none{};
  std::memcpy(memory_.data(), &none, sizeof(none));
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void StagedRecord::Note(const Version& version, const Digest& bytes) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const Entry entry = Entry::Of(layout_, version, bytes);
  std::memcpy(memory_.data(), &entry, sizeof(entry));
}

Digest StagedRecord::Find(const Version& version) const {
  Entry entry;
  std::memcpy(&entry, memory_.data(), sizeof(entry));
  const std::string expected = "the staging memory: expected " + version.ToString() + ", staged whole, got ";
  if (entry.seal != entry.Sealed()) throw Error(ErrorCode::kFailedPrecondition, expected + "nothing that is whole");
  if (entry.layout != layout_) throw Error(ErrorCode::kFailedPrecondition, expected + "the tensors of another layout");
  if (entry.version == Entry::Of(layout_, version, {}).version && entry.step == version.step) return entry.bytes;
  throw Error(ErrorCode::kFailedPrecondition, expected + "another version, of step " + std::to_string(entry.step));
}

}  // namespace layercast
