// The question what a publisher has offered since a version, for those who ask it again and again: over a connection
// that is kept, and in two steps, so that nobody has to wait for the answer. Used by engines.
#pragma once

#include <memory>
#include <string>

#include "src/base/deadline.h"
#include "src/net/keys/keys.h"
#include "src/session/link/kept_peers.h"
#include "src/wire/frames.h"

namespace layercast {

// Resource; one thread only.
class OfferedQuestion {
 public:
  // Asks at once if a connection was kept, and does not wait; else Answer connects and asks. `kept` outlives this.
  OfferedQuestion(KeptPeers& kept, std::string endpoint, Keys keys, wire::OfferedSince since);

  // To be called once. Throws what the publisher refuses with, kUnavailable or kDeadlineExceeded, naming it. Afterwards
  // the connection is kept.
  wire::OfferedVersions Answer(Deadline deadline);

 private:
  wire::OfferedVersions Expect(Deadline deadline);
  wire::OfferedVersions AskAnew(Deadline deadline);

  KeptPeers& kept_;
  const PeerName peer_;
  const Keys keys_;
  const wire::OfferedSince since_;
  std::unique_ptr<PublisherLink> link_;  // null: nothing is asked yet
};

}  // namespace layercast
