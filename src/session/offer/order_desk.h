// What a publisher answers outside any session about the versions that it keeps: a list of them, what was offered
// before, and orders to pin, to hold, to evict, to publish a folder. Part of the desk of versions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/session/link/outbox.h"
#include "src/wire/frames.h"

namespace layercast {

// Who keeps the versions: the trainer's publisher. Thread-safe. Each function throws what the order is refused with.
class VersionKeeper {
 public:
  using Answer = std::function<void(wire::Message)>;  // takes PublishedFolder or Refused; on any thread, once

  virtual ~VersionKeeper() = default;
  virtual wire::VersionsAnswer List() const = 0;
  virtual wire::OfferedVersions OfferedSince(const wire::OfferedSince& since) const = 0;
  virtual void Pin(const wire::PinVersion& order) = 0;
  virtual void Hold(const wire::HoldVersion& order) = 0;
  virtual void Evict(const wire::EvictVersion& order) = 0;
  // Returns at once, and answers when the version is offered or was refused.
  virtual void Publish(wire::PublishFolder order, Answer answer) = 0;
};

// Resource; one thread only.
class OrderDesk {
 public:
  // What is borrowed outlives the desk; without a keeper every order is refused.
  OrderDesk(VersionKeeper* keeper, Outbox& outbox) : keeper_(keeper), outbox_(outbox) {}

  // The answer, which may be none yet; nullopt: the message is none of those that are answered here.
  std::optional<std::vector<wire::Message>> Take(const SessionKey& key, const wire::Message& message);
  // Those who wait for an answer that comes later.
  std::vector<SessionKey> Waiting() const;

 private:
  VersionKeeper& Keeper() const;
  void Publish(const SessionKey& key, const wire::PublishFolder& order);

  VersionKeeper* const keeper_;
  Outbox& outbox_;
  // The other owners are the answers that are still to come.
  std::map<SessionKey, std::weak_ptr<const bool>> under_way_;
};

}  // namespace layercast
