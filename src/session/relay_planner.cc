#include "src/session/relay_planner.h"

#include "src/control/endpoint.h"

namespace layercast {

RelayTree* RelayPlanner::Join(const SessionKey& key, const std::shared_ptr<const OfferedVersion>& version,
                              const std::string& host, const wire::Subscribe& subscribe) {
  if (!subscribe.takes_relays && subscribe.relay_endpoint.empty()) return nullptr;
  if (!subscribe.relay_endpoint.empty()) (void)HostOf(subscribe.relay_endpoint);
  const auto [planned, _] =
      trees_.try_emplace({version->offer().id, subscribe.schedule_digest}, Planned{.version = version, .tree = {}});
  RelayTree& tree = planned->second.tree;
  const std::optional<RelayPlace> place = tree.Join(key,
                                                    {.host = host,
                                                     .place = {subscribe.relay_endpoint, subscribe.relay_offer},
                                                     .takes_relays = subscribe.takes_relays},
                                                    Deadline::Clock::now());
  if (subscribe.takes_relays) Send(key, place);
  return &tree;
}

void RelayPlanner::Lost(const SessionKey& key, RelayTree& tree, const wire::RelayLost& lost) {
  if (const std::optional<RelayTree::Move> move = tree.Lost(key, {lost.relay, lost.offer})) Send(key, move->to);
}

std::optional<std::string> RelayPlanner::Note(const SessionKey& key, RelayTree& tree, const wire::Progress& progress) {
  const std::optional<RelayTree::Escape> escape = tree.Note(key, progress, Deadline::Clock::now());
  if (!escape) return std::nullopt;
  Send(key, escape->move.to);
  return "relay " + escape->from.endpoint + " holds it up: " + escape->why;
}

void RelayPlanner::Leave(const SessionKey& key, RelayTree& tree) {
  for (const RelayTree::Move& move : tree.Leave(key)) Send(move.key, move.to);
}

void RelayPlanner::Sweep() {
  std::erase_if(trees_, [](const auto& tree) {
    const std::shared_ptr<const OfferedVersion> version = tree.second.version.lock();
    return version == nullptr || (version->retired() && version->readers() == 0);
  });
}

void RelayPlanner::Send(const SessionKey& key, const std::optional<RelayPlace>& place) {
  outbox_.Put(key, place ? wire::FetchFrom{place->endpoint, place->offer} : wire::FetchFrom{});
}

}  // namespace layercast
