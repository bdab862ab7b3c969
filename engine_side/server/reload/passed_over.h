// Which versions an engine that was late has passed over: those that its publisher offered between what the engine
// served and what it serves now, also where they are not kept any more. Used by the reloader, for its report.
#pragma once

#include <optional>
#include <string>

#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/control/json_forms.h"
#include "src/net/keys/keys.h"
#include "src/session/ask/offered_question.h"

namespace layercast {

// Resource; one thread only.
class PassedOver {
 public:
  // `before` was served, and `staged` is what is to be committed. Asks the publisher, or the first of several, if there
  // is a connection that was kept: the answer comes meanwhile.
  PassedOver(KeptPeers& kept, const std::string& publishers, const Keys& keys, const std::optional<Version>& before,
             const Version& staged);

  // To be called once, with what is served now. Returns {"count", "complete", "versions": [{"version", "run"}]} with
  // the newest of them, oldest first; null if it cannot be known: the two are of different lineages, or the publisher
  // does not answer before the deadline, or within two seconds. It is not complete if the publisher does not know the
  // one that was served before: then its steps alone say what is after it.
  Json List(const Version& now, Deadline deadline);

 private:
  const std::optional<Version> before_;
  const bool whole_;  // the version is of one publisher: the digests of a sharded trainer's are of their parts
  std::optional<OfferedQuestion> question_;  // empty: nothing is to be asked
};

}  // namespace layercast
