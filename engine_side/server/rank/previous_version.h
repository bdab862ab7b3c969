// The bytes of the version that a rank served before, in host memory: `serve --keep-previous`. An engine goes back to
// it without any publisher. Used by the rank's process.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "layercast/captured_buffers.h"
#include "layercast/memory.h"
#include "layercast/noise/noise.h"
#include "layercast/receiver.h"
#include "layercast/reload_source.h"
#include "layercast/version.h"
#include "src/control/json_forms.h"

namespace layercast {

// Resource; thread-safe. What is kept is known by its digest alone: the parent says which version that is.
class PreviousVersion {
 public:
  // Takes the memory of one more copy of the buffers. Throws kResourceExhausted, with both numbers, if the host has not
  // so much. `captured` outlives this.
  explicit PreviousVersion(const CapturedBuffers& captured);

  // Keeps what the receiver's buffers hold now: the published norms, and their noise. Called before something else is
  // committed, between two forward steps.
  void Keep(const Receiver& receiver);
  // The version of that name and digest, from what is kept. Throws kFailedPrecondition if nothing is.
  ReloadSource Source(const Version& version, const Digest& served) const;
  std::size_t bytes() const { return memory_.size(); }

 private:
  class Walk;

  const CapturedBuffers& captured_;
  HostMemory host_;
  mutable std::mutex mutex_;
  Buffer memory_;               // the buffers, one behind the other; guarded by mutex_
  bool kept_ = false;           // guarded by mutex_
  std::optional<Noise> noise_;  // of what is kept; guarded by mutex_
};

// Where a rank is to take a version from, by the params of `stage`: what it keeps, if they say so. `previous`: null if
// it keeps none. Throws kFailedPrecondition if it is to take what it has not, and what SourceFromJson throws.
ReloadSource SourceOf(const Json& params, int rank, const PreviousVersion* previous);

}  // namespace layercast
