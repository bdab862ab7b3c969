// What the policies that write layer by layer keep of the version before: `undo` keeps its bytes, `in_place` only
// whether any of them are gone. Used by the layerwise committers.
#pragma once

#include <cstddef>
#include <memory>

#include "engine_side/reload/commit/committer.h"

namespace layercast {

// Resource; one thread at a time, except for Keep, which bodies of Place::ForEach may call for their own tensors.
class OldBytes {
 public:
  virtual ~OldBytes() = default;
  // To be called before the captured buffer of kernel tensor `index` is written.
  virtual void Keep(std::size_t index) = 0;
  // As Committer::RollBack and Committer::Forget.
  virtual bool PutBack() = 0;
  virtual void Forget() = 0;
};

// `undo`.
std::unique_ptr<OldBytes> MakeUndoLog(const CommitParts& parts);
// `in_place`.
std::unique_ptr<OldBytes> MakeNoOldBytes(const CommitParts& parts);

}  // namespace layercast
