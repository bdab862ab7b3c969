// Who leaves a slot of an engine, and where to, so that another adapter gets it.
#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

#include "engine_side/server/adapters/adapter_registry.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/utf8.h"

namespace layercast {

AdapterRegistry::Room AdapterRegistry::MakeRoom(const std::string& name, For purpose, Deadline deadline) {
  std::unique_lock lock(mutex_);
  ExpectSlots();
  while (true) {
    std::optional<Room> room = RoomNow(name, purpose);
    const bool helps = purpose == For::kPromotion || CanBecomeFree(name);
    const bool may_wait = helps && !deadline.Passed() && !deadline.Stopped();
    if (room || !may_wait) {
      if (purpose == For::kPromotion) Open();
      if (!room) throw Refusal(name, purpose);
      return std::move(*room);
    }
    if (purpose == For::kPromotion) CloseNext();
    changed_.wait_until(lock, deadline.NextLook());
  }
}

std::optional<AdapterRegistry::Room> AdapterRegistry::RoomNow(const std::string& name, For purpose) {
  DropBeyondCapacity(name);
  if (const auto free = FreeAmong(0, slots_)) return Fill(*free, name, purpose);
  const std::optional<std::size_t> leaves = LeastRecent(0, slots_, name, purpose);
  if (!leaves) return std::nullopt;
  if (host_adapters_ == 0) {
    Evict(*leaves, name);
    return Fill(*leaves, name, purpose);
  }
  std::optional<std::size_t> copy = FreeAmong(slots_, places_.size());
  if (!copy && purpose == For::kLoad) {
    copy = LeastRecent(slots_, places_.size(), name, purpose);
    if (copy && places_[*copy].adapter.name == name) copy.reset();  // the load may fail
    if (copy) Evict(*copy, name);
  }
  if (!copy) return std::nullopt;
  Place& from = places_[*leaves];
  from.moving = true;
  return AdapterMove(*this, *leaves, Fill(*copy, from.adapter.name, For::kPromotion), from.adapter);
}

std::optional<std::size_t> AdapterRegistry::FreeAmong(std::size_t begin, std::size_t end) const {
  for (std::size_t i = begin; i < end; ++i) {
    if (places_[i].state == State::kFree) return i;
  }
  return std::nullopt;
}

// Of those places, the one whose adapter was used least recently and may leave it.
std::optional<std::size_t> AdapterRegistry::LeastRecent(std::size_t begin, std::size_t end, const std::string& name,
                                                        For purpose) const {
  // An adapter that gets a new version keeps its slot if another one may leave.
  const auto age = [&](const Place& of) {
    return std::tuple(of.adapter.name == name, of.last_use, std::string_view(of.adapter.name));
  };
  std::optional<std::size_t> oldest;
  for (std::size_t i = begin; i < end; ++i) {
    if (!MayLeave(places_[i], name, purpose)) continue;
    if (!oldest || age(places_[i]) < age(places_[*oldest])) oldest = i;
  }
  return oldest;
}

bool AdapterRegistry::MayLeave(const Place& place, const std::string& name, For purpose) const {
  if (place.state != State::kServed || place.uses > 0 || place.pinned || place.moving || IsAwaited(place)) return false;
  if (purpose == For::kLoad && place.closed) return false;  // a promotion is to have it
  return host_adapters_ > 0 || place.adapter.name != name;
}

// Whether sequences of an older version are to go on with what this slot holds.
bool AdapterRegistry::IsAwaited(const Place& place) const {
  return std::ranges::any_of(places_, [&](const Place& older) {
    return older.state == State::kRetired && older.uses > 0 && older.adapter.name == place.adapter.name &&
           (on_switch_ == AdapterSwitch::kKeep || older.left_behind);
  });
}

// Whether some slot may become free by sequences that end, or by adapters that are on their way.
bool AdapterRegistry::CanBecomeFree(const std::string& name) const {
  return std::ranges::any_of(places_, [&](const Place& place) {
    if (place.state == State::kRetired || place.moving) return true;
    if (place.state == State::kFilling) return place.filled_for == For::kPromotion;
    if (place.state != State::kServed || place.pinned) return false;
    return (place.uses > 0 || place.closed) && (host_adapters_ > 0 || place.adapter.name != name);
  });
}

// Closes a slot to sequences that come from now on: that of the adapter which is next to leave when nobody uses it.
void AdapterRegistry::CloseNext() {
  const auto slots = places_ | std::views::take(slots_);
  const auto is_closed = [](const Place& slot) { return slot.state == State::kServed && slot.closed; };
  if (std::ranges::any_of(slots, is_closed)) return;
  Place* next = nullptr;
  for (Place& slot : slots) {
    if (slot.state != State::kServed || slot.pinned) continue;
    if (next == nullptr || slot.last_use < next->last_use) next = &slot;
  }
  if (next != nullptr) next->closed = latest_;
}

void AdapterRegistry::Open() {
  for (Place& place : places_) place.closed.reset();
}

// Lets go of what the engine has beyond what it is to keep. All of that was loaded before `name`.
void AdapterRegistry::DropBeyondCapacity(const std::string& name) {
  const auto is_served = [](const Place& place) { return place.state == State::kServed; };
  while (static_cast<std::size_t>(std::ranges::count_if(places_, is_served)) > slots_ + host_adapters_) {
    std::optional<std::size_t> oldest = LeastRecent(slots_, places_.size(), name, For::kPromotion);
    if (!oldest) oldest = LeastRecent(0, slots_, name, For::kPromotion);
    if (!oldest || places_[*oldest].adapter.name == name) return;
    Evict(*oldest, name);
  }
}

void AdapterRegistry::Evict(std::size_t place, const std::string& name) {
  NoteGone(places_[place].adapter.name, "it was evicted for " + Quote(name));
  Retire(place);
}

AdapterFill AdapterRegistry::Fill(std::size_t place, const std::string& name, For purpose) {
  LAYERCAST_CHECK(places_[place].state == State::kFree);
  places_[place] = {.state = State::kFilling, .adapter = {.name = name}, .filled_for = purpose};
  return {*this, place};
}

AdapterFill AdapterRegistry::Demoted(AdapterMove move, const std::string& name, For purpose) {
  const std::lock_guard lock(mutex_);
  Rename(move);
  changed_.notify_all();
  if (places_[move.from()].state != State::kFree) return {};
  return Fill(move.from(), name, purpose);
}

std::optional<AdapterMove> AdapterRegistry::MoveInto(AdapterFill slot, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const std::size_t from = Named(name);
  if (IsSlot(from)) return std::nullopt;
  places_[from].moving = true;
  return AdapterMove(*this, from, std::move(slot), places_[from].adapter);
}

AdapterLease AdapterRegistry::Promoted(AdapterMove move) {
  const std::lock_guard lock(mutex_);
  Rename(move);
  changed_.notify_all();
  return LeaseOf(Named(move.adapter().name));
}

// The adapter is in its new place, unless it was unloaded or got another version meanwhile.
void AdapterRegistry::Rename(AdapterMove& move) {
  Place& from = places_[move.from()];
  Place& to = places_[move.to()];
  from.moving = false;
  move.registry_ = nullptr;  // nothing is left to give up
  if (from.state != State::kServed) return FreeIfUnused(from);
  if (to.lost) throw Error(ErrorCode::kUnavailable, Quote(from.adapter.name) + ": the memory of its slot was lost");
  to = {.state = State::kServed, .adapter = from.adapter, .last_use = from.last_use, .pinned = from.pinned};
  move.to_.registry_ = nullptr;
  Retire(move.from());
}

Error AdapterRegistry::NoSlotFor(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return Refusal(name, For::kPromotion);
}

Error AdapterRegistry::Refusal(const std::string& name, For purpose) const {
  std::string what = "adapter " + Quote(name) + ": no slot is free for it. " + WhoHolds();
  if (purpose == For::kLoad) {
    what += ". An adapter that gets a new version needs a slot beside its own (serve --adapter-slots)";
  }
  return {ErrorCode::kResourceExhausted, what};
}

std::string AdapterRegistry::WhoHolds() const {
  std::string who;
  for (const Place& slot : places_ | std::views::take(slots_)) {
    if (slot.state == State::kFree) continue;
    const bool promoted = slot.state == State::kFilling && slot.filled_for == For::kPromotion;
    const char* how = promoted                        ? "on its way from a host copy"
                      : slot.state == State::kFilling ? "is being loaded"
                      : slot.state == State::kRetired ? "an older version in use"
                      : slot.moving                   ? "on its way to a host copy"
                      : slot.pinned                   ? "pinned"
                      : slot.uses > 0                 ? "in use"
                                                      : "served";
    who += (who.empty() ? "" : ", ") + Quote(slot.adapter.name) + " (" + how + ")";
  }
  return "The " + std::to_string(slots_) + " slots are held by " + (who.empty() ? "nobody" : who);
}

}  // namespace layercast
