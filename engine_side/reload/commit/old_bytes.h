// What the policies that write layer by layer keep of the version before: `undo` keeps its bytes, `in_place` only
// whether any of them are gone. Used by the layerwise committers.
#pragma once

#include <memory>
#include <span>

#include "engine_side/reload/commit/committer.h"

namespace layercast {

// Resource; one thread at a time.
class OldBytes {
 public:
  virtual ~OldBytes() = default;
  // To be called before the captured buffers of these tensors are written.
  virtual void Keep(std::span<const KernelTensor> tensors) = 0;
  // As Committer::RollBack and Committer::Forget.
  virtual bool PutBack() = 0;
  virtual void Forget() = 0;
};

// `undo`.
std::unique_ptr<OldBytes> MakeUndoLog(const CommitParts& parts);
// `in_place`.
std::unique_ptr<OldBytes> MakeNoOldBytes(const CommitParts& parts);

}  // namespace layercast
