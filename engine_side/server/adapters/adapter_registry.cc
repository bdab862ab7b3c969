#include "engine_side/server/adapters/adapter_registry.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::size_t kRemembered = 64;  // adapters that are gone

}  // namespace

AdapterSwitch AdapterSwitchNamed(const std::string& name) {
  if (name == "finish") return AdapterSwitch::kFinish;
  if (name == "keep") return AdapterSwitch::kKeep;
  if (name == "abort") return AdapterSwitch::kAbort;
  throw Error(ErrorCode::kInvalidArgument, "adapter switch: expected finish, keep or abort, got " + Quote(name));
}

void AdapterRegistry::Name(AdapterFill slot, SlottedAdapter adapter, bool pin, bool with_base) {
  const std::lock_guard lock(mutex_);
  const std::size_t place = slot.place();
  LAYERCAST_CHECK(places_[place].state == State::kFilling);
  if (places_[place].lost) {
    throw Error(ErrorCode::kUnavailable, "adapter " + Quote(adapter.name) + ": the memory of its slot was lost");
  }
  const std::optional<std::size_t> old = Find(adapter.name);
  if (old) {
    pin = pin || places_[*old].pinned;
    places_[*old].left_behind = with_base;
    Retire(*old);
    ++switches_;
  }
  std::erase_if(gone_, [&](const auto& each) { return each.first == adapter.name; });
  places_[place] = {.state = State::kServed, .adapter = std::move(adapter), .last_use = ++uses_, .pinned = pin};
  slot.registry_ = nullptr;  // it is not given back any more
  DropBeyondCapacity(places_[place].adapter.name);
  changed_.notify_all();
}

void AdapterRegistry::GiveBack(std::size_t place) noexcept {
  const std::lock_guard lock(mutex_);
  places_[place] = {};
  changed_.notify_all();
}

void AdapterRegistry::GiveUp(std::size_t moving) noexcept {
  const std::lock_guard lock(mutex_);
  places_[moving].moving = false;
  FreeIfUnused(places_[moving]);
  changed_.notify_all();
}

void AdapterRegistry::Unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Retire(Named(name));
  NoteGone(name, "it was unloaded");
  changed_.notify_all();
}

void AdapterRegistry::Pin(const std::string& name, bool pin) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[Named(name)];
  const auto pins = static_cast<std::size_t>(std::ranges::count(places_, true, &Place::pinned));
  if (pin && !place.pinned && pins + 1 >= slots_) {
    throw Error(ErrorCode::kFailedPrecondition,
                "adapter " + Quote(name) + ": " + std::to_string(pins) + " of " + std::to_string(slots_) +
                    " slots are pinned, and one must stay for " +
                    (host_adapters_ > 0 ? "new versions and for adapters in host copies" : "new versions"));
  }
  place.pinned = pin;
  changed_.notify_all();
}

void AdapterRegistry::WaitUnused(const std::string& name, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto in_use = [&] {
    return std::ranges::any_of(
        places_, [&](const Place& place) { return place.state == State::kRetired && place.adapter.name == name; });
  };
  while (in_use()) {
    if (deadline.Stopped()) throw Error(ErrorCode::kCancelled, "the wait for adapter " + Quote(name) + " was given up");
    if (deadline.Passed()) {
      throw Error(ErrorCode::kDeadlineExceeded, "adapter " + Quote(name) + " is still used by sequences under way");
    }
    changed_.wait_until(lock, deadline.NextLook());
  }
}

void AdapterRegistry::Forget(const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < slots_; ++i) {
    if (places_[i].state == State::kFilling) places_[i].lost = true;
    if (places_[i].state != State::kServed) continue;
    NoteGone(places_[i].adapter.name, why);
    Retire(i);
  }
  ++switches_;
  changed_.notify_all();
}

void AdapterRegistry::Expect(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  static_cast<void>(Named(name));
}

AdapterLease AdapterRegistry::Admit(const std::string& name, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  latest_ = std::max(latest_, sequence);
  const std::size_t place = Named(name);
  const Place& of = places_[place];
  if (!IsSlot(place) || of.moving || (of.closed && sequence > *of.closed)) return {};
  return LeaseOf(place);
}

AdapterLease AdapterRegistry::InSlot(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const std::size_t place = Named(name);
  if (!IsSlot(place) || places_[place].moving) return {};
  return LeaseOf(place);
}

AdapterLease AdapterRegistry::Lease(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return LeaseOf(Named(name));
}

AdapterLease AdapterRegistry::LeaseOf(std::size_t place) {
  Place& of = places_[place];
  ++of.uses;
  of.last_use = ++uses_;
  return {*this, place, of.adapter.name, of.adapter.version};
}

std::optional<AdapterLease> AdapterRegistry::Renewed(AdapterLease lease) {
  if (!lease) return lease;
  AdapterLease renewed;
  {
    const std::lock_guard lock(mutex_);
    const bool left_behind = places_[static_cast<std::size_t>(lease.slot())].left_behind;
    if (on_switch_ == AdapterSwitch::kFinish && !left_behind) return lease;
    const std::optional<std::size_t> now = Find(lease.name());
    if (!now || static_cast<std::int32_t>(*now) == lease.slot()) return lease;
    if (on_switch_ != AdapterSwitch::kAbort) {
      LAYERCAST_CHECK(IsSlot(*now));  // IsAwaited kept it there
      renewed = LeaseOf(*now);
    }
  }
  if (!renewed) return std::nullopt;
  return renewed;
}

std::uint64_t AdapterRegistry::switches() const {
  const std::lock_guard lock(mutex_);
  return switches_;
}

std::optional<Version> AdapterRegistry::VersionOf(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const std::optional<std::size_t> place = Find(name);
  if (!place) return std::nullopt;
  return places_[*place].adapter.version;
}

std::vector<std::string> AdapterRegistry::NotOf(const Version& base) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Place& place : places_) {
    const bool states = place.state == State::kServed && place.adapter.base;
    if (states && place.adapter.base->digest != base.digest) names.push_back(place.adapter.name);
  }
  std::ranges::sort(names);
  return names;
}

Json AdapterRegistry::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].state == State::kServed || places_[i].state == State::kRetired) order.push_back(i);
  }
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::tuple(places_[i].state == State::kRetired, std::string_view(places_[i].adapter.name), i);
  });
  Json list = Json::array();
  for (const std::size_t i : order) {
    const Place& place = places_[i];
    Json entry = {{"name", place.adapter.name},
                  {"version", VersionToJson(place.adapter.version)},
                  {"base", VersionToJson(place.adapter.base)},
                  {"tier", IsSlot(i) ? "slot" : "host"},
                  {"slot", IsSlot(i) ? Json(i) : Json()},
                  {"place", i},
                  {"state", place.state == State::kServed ? "served" : "retired"},
                  {"uses", place.uses},
                  {"pinned", place.pinned}};
    entry.update(place.adapter.about);
    list.push_back(std::move(entry));
  }
  for (const auto& [name, why] : gone_) list.push_back({{"name", name}, {"state", "gone"}, {"why", why}});
  return list;
}

void AdapterRegistry::ExpectSlots() const {
  if (slots_ > 0) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "this engine has no adapter slots: it was started without serve --adapter-slots");
}

std::optional<std::size_t> AdapterRegistry::Find(const std::string& name) const {
  const auto found = std::ranges::find_if(
      places_, [&](const Place& place) { return place.state == State::kServed && place.adapter.name == name; });
  if (found == places_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - places_.begin());
}

std::size_t AdapterRegistry::Named(const std::string& name) const {
  ExpectSlots();
  if (const auto place = Find(name)) return *place;
  std::string served;
  for (const Place& place : places_) {
    if (place.state == State::kServed) served += (served.empty() ? "" : ", ") + Quote(place.adapter.name);
  }
  const auto gone = std::ranges::find(gone_, name, &std::pair<std::string, std::string>::first);
  throw Error(ErrorCode::kNotFound, "there is no adapter " + Quote(name) +
                                        (gone == gone_.end() ? "" : " any more: " + gone->second) +
                                        ". This engine has " + (served.empty() ? "none" : served));
}

void AdapterRegistry::NoteGone(const std::string& name, std::string why) {
  std::erase_if(gone_, [&](const auto& each) { return each.first == name; });
  if (gone_.size() == kRemembered) gone_.pop_front();
  gone_.emplace_back(name, std::move(why));
}

// Takes the name away: the place is free once nobody uses it.
void AdapterRegistry::Retire(std::size_t place) {
  places_[place].state = State::kRetired;
  places_[place].pinned = false;
  FreeIfUnused(places_[place]);
}

void AdapterRegistry::FreeIfUnused(Place& place) {
  if (place.state == State::kRetired && place.uses == 0 && !place.moving) place = {};
}

void AdapterRegistry::Release(std::size_t place) noexcept {
  const std::lock_guard lock(mutex_);
  --places_[place].uses;
  FreeIfUnused(places_[place]);
  changed_.notify_all();
}

}  // namespace layercast
