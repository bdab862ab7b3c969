// What a rank's captured buffers hold: one whole version, or parts of two, when they are torn; the record of their
// norms' noise is moved with it. Used by the receiver.
#pragma once

#include <memory>
#include <optional>

#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/noise/norm_noise.h"
#include "engine_side/reload/receive/staged_version.h"
#include "layercast/receiver.h"
#include "layercast/version.h"

namespace layercast {

// Value; one thread only.
class ServedVersion {
 public:
  const std::optional<Version>& version() const { return now_.version; }  // empty before the first one, and while torn
  const Digest& digest() const { return now_.digest; }
  const std::optional<Torn>& torn() const { return torn_; }
  // The path of the latest version that came from a path, also if another version was committed after it, or its bytes
  // were lost since.
  const Origin& origin() const { return now_.origin; }
  // Of the latest version that was committed, as it came; null: it is not kept. After a rollback of a commit that was
  // through, it is still the newer one's: it says so itself, and there is memory for one alone.
  const std::shared_ptr<const SourceCopy>& source() const { return source_; }

  // To be called when a reload begins: what is served now is what a failure goes back to.
  void Settle(Committer& committer, NormNoise& noise);
  // To be called when the version `staged` was committed.
  void Become(const StagedVersion& staged, NormNoise& noise);
  // To be called when the commit of `to` failed. Returns true if what was served before is served again, and false if
  // the captured buffers are now torn. If the committer throws, they are torn too.
  bool RollBack(Committer& committer, NormNoise& noise, const Version& to);
  // To be called when the captured buffers do not hold what was committed: they are torn. If nothing was committed
  // since the reload began, the committer does not know what changed, and only the commit of a whole version repairs
  // the state.
  void Lose();
  // To be called when what the captured buffers held was given up. Does nothing if no version was served.
  void Discard(NormNoise& noise);

 private:
  struct Whole {
    std::optional<Version> version;
    Digest digest;
    Origin origin;
  };
  Whole now_;
  Whole before_;
  std::shared_ptr<const SourceCopy> source_;  // the other owners are sessions that take deltas of it
  std::optional<Torn> torn_;
  bool committed_ = false;  // since Settle
  bool lost_ = false;       // torn by bytes that changed behind the committer's back
};

}  // namespace layercast
