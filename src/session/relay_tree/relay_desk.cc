#include "src/session/relay_tree/relay_desk.h"

#include <algorithm>
#include <string_view>

#include "layercast/error.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {
namespace {

void CheckLength(std::string_view what, const std::string& name) {
  if (name.size() <= RelayDesk::kMostNameBytes) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(what) + ": expected at most " +
                                               std::to_string(RelayDesk::kMostNameBytes) + " bytes, got " +
                                               std::to_string(name.size()));
}

}  // namespace

RelayTree* RelayDesk::Join(const SessionKey& key, const std::shared_ptr<const OfferedVersion>& version,
                           const std::string& host, const wire::Subscribe& subscribe) {
  if (!subscribe.takes_relays && subscribe.relay_endpoint.empty()) return nullptr;
  CheckLength("a relay's endpoint", subscribe.relay_endpoint);
  CheckLength("the boot id of a receiver's host", host);
  if (!subscribe.relay_endpoint.empty()) (void)HostOf(subscribe.relay_endpoint);
  const std::pair id(version->offer().id, subscribe.schedule_digest);
  if (!trees_.contains(id)) ForgetOldest();
  Planned& planned = trees_.try_emplace(id, Planned{.version = version, .tree = {}}).first->second;
  planned.joined = ++joined_;
  RelayTree& tree = planned.tree;
  const std::optional<RelayPlace> place = tree.Join(key,
                                                    {.host = host,
                                                     .place = {subscribe.relay_endpoint, subscribe.relay_offer},
                                                     .takes_relays = subscribe.takes_relays},
                                                    Deadline::Clock::now());
  if (subscribe.takes_relays) Send(key, place);
  return &tree;
}

void RelayDesk::Lost(const SessionKey& key, RelayTree& tree, const wire::RelayLost& lost) {
  if (const std::optional<RelayTree::Move> move = tree.Lost(key, {lost.relay, lost.offer})) Send(key, move->to);
}

std::optional<std::string> RelayDesk::Note(const SessionKey& key, RelayTree& tree, const wire::Progress& progress) {
  const std::optional<RelayTree::Escape> escape = tree.Note(key, progress, Deadline::Clock::now());
  if (!escape) return std::nullopt;
  Send(key, escape->move.to);
  return "relay " + escape->from.endpoint + " holds it up: " + escape->why;
}

void RelayDesk::Leave(const SessionKey& key, RelayTree& tree) {
  for (const RelayTree::Move& move : tree.Leave(key)) Send(move.key, move.to);
}

void RelayDesk::Sweep() {
  std::erase_if(trees_, [](const auto& tree) {
    const std::shared_ptr<const OfferedVersion> version = tree.second.version.lock();
    return version == nullptr || (version->retired() && version->readers() == 0);
  });
}

// Makes room for one more tree. Trees that have receivers stay, and they are bounded by the number of sessions.
void RelayDesk::ForgetOldest() {
  if (trees_.size() < kMostTrees) return;
  const auto age = [](const auto& tree) {
    return std::pair(tree.second.tree.HasReceivers(), tree.second.joined);  // trees without receivers come first
  };
  const auto oldest = std::ranges::min_element(trees_, {}, age);
  if (!oldest->second.tree.HasReceivers()) trees_.erase(oldest);
}

void RelayDesk::Send(const SessionKey& key, const std::optional<RelayPlace>& place) {
  outbox_.Put(key, place ? wire::FetchFrom{place->endpoint, place->offer} : wire::FetchFrom{});
}

}  // namespace layercast
