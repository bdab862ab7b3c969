// The relaying half of a receiver: serves on what its sessions take, while they take it and until the next one begins.
// A rank that relays has one; sessions fill it (FetchOptions::relay), the publisher sends other receivers to it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/base/failpoint.h"
#include "src/base/worker_pool.h"
#include "src/session/offer_service.h"
#include "src/session/relay_tree.h"
#include "src/session/relayed_chunks.h"
#include "src/wire/schedule.h"

namespace layercast {

struct RelayOptions {
  std::string endpoint;  // other receivers are sent to it as it stands; port 0 picks one
  bool allow_remote = false;
  std::vector<std::string> channels{};           // that are offered; empty: all that this build has
  std::chrono::milliseconds peer_timeout{5000};  // as OfferServiceOptions'
};

// Resource; one thread only, that of the session. Its memory is that of the schedules that it holds, twice where
// somebody still reads those of the session before.
class Relay {
 public:
  // Throws as OfferService does, and kInvalidArgument for an endpoint that stands for all addresses of the host.
  Relay(const RelayOptions& options, WorkerPool& pool, FailPoints& failpoints);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  std::string endpoint() const { return service_.endpoint(); }

  // Stops serving what was served until now: whoever follows is refused with `why`.
  void Clear(const Error& why);
  // Chunks of a schedule that a session begins to take; until Clear.
  struct Served {
    RelayedChunks* chunks = nullptr;
    RelayPlace place;
  };
  // Throws kResourceExhausted.
  Served Serve(const Schedule& schedule);

 private:
  struct Held {
    std::shared_ptr<RelayedChunks> chunks;    // the second owner is the version
    std::shared_ptr<OfferedVersion> version;  // the second owner is the service
  };
  void FreeReleased();

  OfferService service_;
  std::vector<Held> served_;
  std::vector<Held> retiring_;  // somebody may read them
};

}  // namespace layercast
