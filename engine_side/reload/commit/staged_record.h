// Records which whole version the staging memory holds, if any. It is kept behind the staged copy, so that a process
// that follows one that died commits only what that one had staged. Used by the stager, under the policy `staged`.
#pragma once

#include "engine_side/reload/layout/kernel_layout.h"
#include "layercast/memory.h"
#include "layercast/version.h"

namespace layercast {

// Memory that holds no record starts as a record of nothing. Resource; one thread at a time.
class StagedRecord {
 public:
  StagedRecord(const KernelLayout& layout, MemoryResource& memory);

  // To be called before the first byte of another version is staged.
  void Clear();
  // To be called after the last byte was staged. `bytes` is the digest of what the captured buffers are to read back.
  void Note(const Version& version, const Digest& bytes);
  // The digest of the bytes of `version`. Throws kFailedPrecondition if something else is staged, or nothing.
  Digest Find(const Version& version) const;

 private:
  struct Entry;

  const Digest layout_;
  Buffer memory_;
};

}  // namespace layercast
