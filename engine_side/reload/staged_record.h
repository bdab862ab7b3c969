// What the staging memory holds, whole, if anything: kept behind the staged copy, so that a process that comes after
// one that died commits nothing but what that one had staged. Used by the stager, under the policy `staged`.
#pragma once

#include "engine_side/reload/kernel_layout.h"
#include "layercast/memory.h"
#include "layercast/version.h"

namespace layercast {

// Memory that holds no record begins as one of nothing. Resource; one thread at a time.
class StagedRecord {
 public:
  StagedRecord(const KernelLayout& layout, MemoryResource& memory);

  // Before the first byte of another version is staged.
  void Clear();
  // After the last one. `bytes`: the digest of what the captured buffers are to read back.
  void Note(const Version& version, const Digest& bytes);
  // The digest of that version's bytes. Throws kFailedPrecondition where something else is staged, or nothing.
  Digest Find(const Version& version) const;

 private:
  struct Entry;

  const Digest layout_;
  Buffer memory_;
};

}  // namespace layercast
