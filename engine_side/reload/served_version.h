// What a rank's captured buffers hold: a version, whole, or two of them, torn. Used by the receiver.
#pragma once

#include <optional>

#include "engine_side/reload/committer.h"
#include "engine_side/reload/staged_version.h"
#include "layercast/receiver.h"
#include "layercast/version.h"

namespace layercast {

// Value; one thread only.
class ServedVersion {
 public:
  const std::optional<Version>& version() const { return now_.version; }  // empty before the first, and while torn
  const Digest& digest() const { return now_.digest; }
  const std::optional<Torn>& torn() const { return torn_; }
  // The path that was committed last, whatever came after it from elsewhere, and also where its bytes were lost since.
  const Origin& origin() const { return now_.origin; }

  // A reload begins: what is served now is what a failure goes back to.
  void Settle(Committer& committer);
  // It ended well.
  void Become(const StagedVersion& staged);
  // It did not, as `to` was written. False: torn. Where the committer throws, torn as well.
  bool RollBack(Committer& committer, const Version& to);
  // It did, and yet what is served is not it: torn. Where nothing was committed since the reload began, no committer
  // knows what changed, and only a whole version that is committed mends it.
  void Lose();

 private:
  struct Whole {
    std::optional<Version> version;
    Digest digest;
    Origin origin;
  };
  Whole now_;
  Whole before_;
  std::optional<Torn> torn_;
  bool committed_ = false;  // since Settle
  bool lost_ = false;       // by bytes that changed behind the committer's back
};

}  // namespace layercast
