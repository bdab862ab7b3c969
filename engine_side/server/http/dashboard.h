// The dashboard of an engine: one page, and what it shows. It only reads. Used by the HTTP door.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "engine_side/server/http/engine_behind.h"
#include "src/control/watch/peer_watch.h"
#include "src/net/http/http_answer.h"

namespace layercast {

// Resource; thread-safe. Nobody asks the publisher before somebody looks.
class Dashboard {
 public:
  static constexpr const char* kPage = "/dashboard";
  static constexpr const char* kStatus = "/dashboard/status";
  static constexpr std::size_t kSyncs = 32;  // that are remembered

  explicit Dashboard(const EngineBehind& engine);  // which must outlive it

  // A sync has ended so: a Reloader's outcome.
  void Synced(const Json& outcome);

  HttpAnswer Page() const;
  // What `layercast top` tells of this engine and of the publisher that it follows, and more that is known here
  // (docs/operations.md).
  HttpAnswer Status();

 private:
  std::vector<PeerState> Publishers();

  const EngineBehind& engine_;
  const std::string policy_;  // what the page may do
  std::mutex mutex_;
  std::deque<Json> syncs_;            // the last ones, oldest first; guarded by mutex_, like all below
  std::string watched_;               // the publisher; empty: none
  std::unique_ptr<PeerWatch> watch_;  // of it
};

}  // namespace layercast
