#include "engine_side/reload/commit/staged_record.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "layercast/error.h"
#include "src/base/digest/digest.h"

namespace layercast {

// The record as it lies in memory. It is valid if its last field is the digest of the fields before it.
struct StagedRecord::Entry {
  Digest layout;   // of the kernel tensors
  Digest version;  // of its lineage and digest
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

// A killed process has executed its stores in program order, as far as it got. So it is enough to keep the compiler
// from moving other stores across this one.
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
