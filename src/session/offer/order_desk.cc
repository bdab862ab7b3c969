#include "src/session/offer/order_desk.h"

#include <string>

#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::size_t kMostUnderWay = 16;

}  // namespace

std::optional<std::vector<wire::Message>> OrderDesk::Take(const SessionKey& key, const wire::Message& message) {
  using Messages = std::vector<wire::Message>;
  if (std::holds_alternative<wire::VersionsRequest>(message)) return Messages{Keeper().List()};
  if (const auto* since = std::get_if<wire::OfferedSince>(&message)) return Messages{Keeper().OfferedSince(*since)};
  if (const auto* hold = std::get_if<wire::HoldVersion>(&message)) {
    Keeper().Hold(*hold);
    return Messages{Keeper().List()};
  }
  if (const auto* pin = std::get_if<wire::PinVersion>(&message)) {
    Keeper().Pin(*pin);
    return Messages{Keeper().List()};
  }
  if (const auto* evict = std::get_if<wire::EvictVersion>(&message)) {
    Keeper().Evict(*evict);
    return Messages{Keeper().List()};
  }
  if (const auto* folder = std::get_if<wire::PublishFolder>(&message)) {
    Publish(key, *folder);
    return Messages{};
  }
  const auto order = under_way_.find(key);
  if (!std::holds_alternative<wire::Ping>(message) || order == under_way_.end()) return std::nullopt;
  if (order->second.expired()) under_way_.erase(order);  // its answer is on the way, before this one
  return Messages{wire::Pong{}};
}

std::vector<SessionKey> OrderDesk::Waiting() const {
  std::vector<SessionKey> waiting;
  for (const auto& [key, answer] : under_way_) {
    if (!answer.expired()) waiting.push_back(key);
  }
  return waiting;
}

VersionKeeper& OrderDesk::Keeper() const {
  if (keeper_ != nullptr) return *keeper_;
  throw Error(ErrorCode::kUnsupported, "expected a publisher, which keeps versions; this is a rank of an engine");
}

void OrderDesk::Publish(const SessionKey& key, const wire::PublishFolder& order) {
  std::erase_if(under_way_, [](const auto& one) { return one.second.expired(); });
  if (under_way_.contains(key)) throw Error(ErrorCode::kInvalidArgument, "'publish_folder' twice in one session");
  if (under_way_.size() >= kMostUnderWay) {
    throw Error(ErrorCode::kResourceExhausted, "the publisher has " + std::to_string(under_way_.size()) +
                                                   " folders to publish, the most that may wait");
  }
  const auto waits = std::make_shared<const bool>(true);
  under_way_[key] = waits;
  Keeper().Publish(order,
                   [waits, key, &outbox = outbox_](wire::Message answer) { outbox.Put(key, std::move(answer)); });
}

}  // namespace layercast
