// Sends the receivers of a publisher's snapshots to each other: one tree for each version and schedule. Used by the
// offer desk. Resource; one thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "src/session/offered_version.h"
#include "src/session/outbox.h"
#include "src/session/relay_tree.h"
#include "src/wire/frames.h"

namespace layercast {

class RelayPlanner {
 public:
  explicit RelayPlanner(Outbox& outbox) : outbox_(outbox) {}

  // The tree that a receiver joins, as long as the version has readers; null: it neither takes from relays nor is one.
  // Throws kInvalidArgument for a relay's endpoint that is none.
  RelayTree* Join(const SessionKey& key, const std::shared_ptr<const OfferedVersion>& version, const std::string& host,
                  const wire::Subscribe& subscribe);
  // The receiver goes elsewhere, if it is held up: what is to be told of that.
  std::optional<std::string> Note(const SessionKey& key, RelayTree& tree, const wire::Progress& progress);
  void Lost(const SessionKey& key, RelayTree& tree, const wire::RelayLost& lost);
  void Leave(const SessionKey& key, RelayTree& tree);
  // Drops the trees of versions that nobody can ask for any more.
  void Sweep();

 private:
  struct Planned {
    std::weak_ptr<const OfferedVersion> version;
    RelayTree tree;
  };
  void Send(const SessionKey& key, const std::optional<RelayPlace>& place);

  Outbox& outbox_;
  std::map<std::pair<std::uint64_t, Digest>, Planned> trees_;  // by offer and schedule
};

}  // namespace layercast
