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

  // Trees that nobody takes from any more, and relays that have finished, are kept for late joiners up to a maximum:
  // this one, and RelayTree::kMostFinished in each tree.
  static constexpr std::size_t kMostTrees = 256;
  // A relay's endpoint, and the name of its host, are remembered after it has finished: so long they may be.
  static constexpr std::size_t kMostNameBytes = 512;

  // The tree that a receiver joins, valid until it finishes or leaves; null: it neither takes from relays nor is one.
  // Throws kInvalidArgument for a relay's endpoint that is none or is too long, and what RelayTree::Join throws.
  RelayTree* Join(const SessionKey& key, const std::shared_ptr<const OfferedVersion>& version, const std::string& host,
                  const wire::Subscribe& subscribe);
  // Sends the receiver elsewhere, if its relay holds it up; returns what is to be told of that.
  std::optional<std::string> Note(const SessionKey& key, RelayTree& tree, const wire::Progress& progress);
  void Lost(const SessionKey& key, RelayTree& tree, const wire::RelayLost& lost);
  void Leave(const SessionKey& key, RelayTree& tree);
  // Drops the trees of versions that nobody can ask for any more.
  void Sweep();
  std::size_t trees() const { return trees_.size(); }

 private:
  struct Planned {
    std::weak_ptr<const OfferedVersion> version;
    RelayTree tree;
    std::uint64_t joined = 0;  // when somebody last did, in the order of joining
  };
  void ForgetOldest();
  void Send(const SessionKey& key, const std::optional<RelayPlace>& place);

  Outbox& outbox_;
  std::map<std::pair<std::uint64_t, Digest>, Planned> trees_;  // by offer and schedule
  std::uint64_t joined_ = 0;
};

}  // namespace layercast
