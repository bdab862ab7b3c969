// Sends the receivers of a publisher's snapshots to each other, by one tree for each version and schedule. Used by the
// desk of versions. Resource; one thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "src/session/link/offered_version.h"
#include "src/session/link/outbox.h"
#include "src/session/relay_tree/relay_tree.h"
#include "src/wire/frames.h"

namespace layercast {

class RelayDesk {
 public:
  explicit RelayDesk(Outbox& outbox) : outbox_(outbox) {}

  // How many trees are kept, those included that nobody takes from any more: late joiners may. Likewise each tree keeps
  // up to RelayTree::kMostFinished relays that have finished.
  static constexpr std::size_t kMostTrees = 256;
  // How long a relay's endpoint and its host's name may be, because both are remembered after it has finished.
  static constexpr std::size_t kMostNameBytes = 512;

  // Returns the tree that a receiver joins, valid until it finishes or leaves. Null: it neither takes from relays nor
  // is one. Throws kInvalidArgument for a relay's endpoint that is malformed or too long, and what RelayTree::Join
  // throws.
  RelayTree* Join(const SessionKey& key, const std::shared_ptr<const OfferedVersion>& version, const std::string& host,
                  const wire::Subscribe& subscribe);
  // Takes a receiver's report. If its relay holds it up, the receiver is sent elsewhere, and the text to log is
  // returned.
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
    std::uint64_t joined = 0;  // the number, in the order of joining, of the latest to join
  };
  void ForgetOldest();
  void Send(const SessionKey& key, const std::optional<RelayPlace>& place);

  Outbox& outbox_;
  std::map<std::pair<std::uint64_t, Digest>, Planned> trees_;  // by offer and schedule
  std::uint64_t joined_ = 0;
};

}  // namespace layercast
