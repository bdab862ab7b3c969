#include "engine_side/server/adapters/adapter_registry.h"

#include <algorithm>
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

AdapterLease& AdapterLease::operator=(AdapterLease&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  registry_ = std::exchange(other.registry_, nullptr);
  slot_ = other.slot_;
  name_ = std::move(other.name_);
  version_ = std::move(other.version_);
  return *this;
}

void AdapterLease::GiveBack() noexcept {
  if (registry_ != nullptr) std::exchange(registry_, nullptr)->Release(slot_);
}

std::size_t AdapterRegistry::Take(const std::string& name, Deadline deadline) {
  std::unique_lock lock(mutex_);
  ExpectSlots();
  while (true) {
    if (const auto slot = FreeOrEvicted(name)) {
      slots_[*slot] = {.state = State::kFilling, .adapter = {.name = name}};
      return *slot;
    }
    const bool may_wait = CanBecomeFree(name) && !deadline.Passed() && !deadline.Stopped();
    if (!may_wait) {
      throw Error(ErrorCode::kResourceExhausted,
                  "adapter " + Quote(name) + ": no slot is free for it. " + WhoHolds() +
                      ". An adapter that gets a new version needs a slot beside its own (serve --adapter-slots)");
    }
    changed_.wait_until(lock, deadline.NextLook());
  }
}

// The slot to fill next, without waiting. One that is evicted for it loses its name now.
std::optional<std::size_t> AdapterRegistry::FreeOrEvicted(const std::string& name) {
  std::optional<std::size_t> victim;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.state == State::kFree) return i;
    if (slot.state != State::kServed || slot.uses > 0 || slot.pinned || slot.adapter.name == name) continue;
    const auto age = [](const Slot& of) { return std::pair(of.last_use, std::string_view(of.adapter.name)); };
    if (!victim || age(slot) < age(slots_[*victim])) victim = i;
  }
  if (victim) NoteGone(slots_[*victim].adapter.name, "it was evicted for " + Quote(name));
  return victim;
}

// Whether some slot may become free by sequences that end.
bool AdapterRegistry::CanBecomeFree(const std::string& name) const {
  return std::ranges::any_of(slots_, [&](const Slot& slot) {
    if (slot.state == State::kRetired) return true;
    return slot.state == State::kServed && slot.uses > 0 && !slot.pinned && slot.adapter.name != name;
  });
}

void AdapterRegistry::Name(std::size_t slot, SlottedAdapter adapter, bool pin, bool with_base) {
  const std::lock_guard lock(mutex_);
  LAYERCAST_CHECK(slots_[slot].state == State::kFilling);
  const std::optional<std::size_t> old = Find(adapter.name);
  if (old) {
    pin = pin || slots_[*old].pinned;
    slots_[*old].left_behind = with_base;
    Retire(*old);
    ++switches_;
  }
  std::erase_if(gone_, [&](const auto& each) { return each.first == adapter.name; });
  slots_[slot] = {.state = State::kServed, .adapter = std::move(adapter), .last_use = ++uses_, .pinned = pin};
  changed_.notify_all();
}

void AdapterRegistry::GiveBack(std::size_t slot) {
  const std::lock_guard lock(mutex_);
  if (slots_[slot].state != State::kFilling) return;  // forgotten meanwhile
  slots_[slot] = {};
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
  Slot& slot = slots_[Named(name)];
  const auto pins = static_cast<std::size_t>(std::ranges::count(slots_, true, &Slot::pinned));
  if (pin && !slot.pinned && pins + 1 >= slots_.size()) {
    throw Error(ErrorCode::kFailedPrecondition, "adapter " + Quote(name) + ": " + std::to_string(pins) + " of " +
                                                    std::to_string(slots_.size()) +
                                                    " slots are pinned, and one must stay for new versions");
  }
  slot.pinned = pin;
  changed_.notify_all();
}

void AdapterRegistry::WaitUnused(const std::string& name, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto in_use = [&] {
    return std::ranges::any_of(
        slots_, [&](const Slot& slot) { return slot.state == State::kRetired && slot.adapter.name == name; });
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
  for (Slot& slot : slots_) {
    if (slot.state != State::kServed) continue;
    NoteGone(slot.adapter.name, why);
    Retire(static_cast<std::size_t>(&slot - slots_.data()));
  }
  ++switches_;
  changed_.notify_all();
}

void AdapterRegistry::Expect(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  static_cast<void>(Named(name));
}

AdapterLease AdapterRegistry::Lease(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return LeaseOf(Named(name));
}

AdapterLease AdapterRegistry::LeaseOf(std::size_t index) {
  Slot& slot = slots_[index];
  ++slot.uses;
  slot.last_use = ++uses_;
  return {*this, index, slot.adapter.name, slot.adapter.version};
}

std::optional<AdapterLease> AdapterRegistry::Renewed(AdapterLease lease) {
  if (!lease) return lease;
  AdapterLease renewed;
  {
    const std::lock_guard lock(mutex_);
    const bool left_behind = slots_[static_cast<std::size_t>(lease.slot())].left_behind;
    if (on_switch_ == AdapterSwitch::kFinish && !left_behind) return lease;
    const std::optional<std::size_t> now = Find(lease.name());
    if (!now || static_cast<std::int32_t>(*now) == lease.slot()) return lease;
    if (on_switch_ != AdapterSwitch::kAbort) renewed = LeaseOf(*now);
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
  const std::optional<std::size_t> slot = Find(name);
  if (!slot) return std::nullopt;
  return slots_[*slot].adapter.version;
}

std::vector<std::string> AdapterRegistry::NotOf(const Version& base) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Slot& slot : slots_) {
    const bool states = slot.state == State::kServed && slot.adapter.base;
    if (states && slot.adapter.base->digest != base.digest) names.push_back(slot.adapter.name);
  }
  std::ranges::sort(names);
  return names;
}

Json AdapterRegistry::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state == State::kServed || slots_[i].state == State::kRetired) order.push_back(i);
  }
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::tuple(slots_[i].state == State::kRetired, std::string_view(slots_[i].adapter.name), i);
  });
  Json list = Json::array();
  for (const std::size_t i : order) {
    const auto& [state, adapter, uses, last_use, pinned, left_behind] = slots_[i];
    Json entry = {{"name", adapter.name},
                  {"version", VersionToJson(adapter.version)},
                  {"base", VersionToJson(adapter.base)},
                  {"slot", i},
                  {"state", state == State::kServed ? "served" : "retired"},
                  {"uses", uses},
                  {"pinned", pinned}};
    entry.update(adapter.about);
    list.push_back(std::move(entry));
  }
  for (const auto& [name, why] : gone_) list.push_back({{"name", name}, {"state", "gone"}, {"why", why}});
  return list;
}

void AdapterRegistry::ExpectSlots() const {
  if (!slots_.empty()) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "this engine has no adapter slots: it was started without serve --adapter-slots");
}

std::optional<std::size_t> AdapterRegistry::Find(const std::string& name) const {
  const auto found = std::ranges::find_if(
      slots_, [&](const Slot& slot) { return slot.state == State::kServed && slot.adapter.name == name; });
  if (found == slots_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - slots_.begin());
}

std::size_t AdapterRegistry::Named(const std::string& name) const {
  ExpectSlots();
  if (const auto slot = Find(name)) return *slot;
  std::string served;
  for (const Slot& slot : slots_) {
    if (slot.state == State::kServed) served += (served.empty() ? "" : ", ") + Quote(slot.adapter.name);
  }
  const auto gone = std::ranges::find(gone_, name, &std::pair<std::string, std::string>::first);
  throw Error(ErrorCode::kNotFound, "there is no adapter " + Quote(name) +
                                        (gone == gone_.end() ? "" : " any more: " + gone->second) +
                                        ". This engine has " + (served.empty() ? "none" : served));
}

std::string AdapterRegistry::WhoHolds() const {
  std::string who;
  for (const Slot& slot : slots_) {
    const char* how = slot.state == State::kFilling   ? "is being loaded"
                      : slot.state == State::kRetired ? "an older version in use"
                      : slot.pinned                   ? "pinned"
                      : slot.uses > 0                 ? "in use"
                                                      : "served";
    who += (who.empty() ? "" : ", ") + Quote(slot.adapter.name) + " (" + how + ")";
  }
  return "The " + std::to_string(slots_.size()) + " slots are held by " + who;
}

void AdapterRegistry::NoteGone(const std::string& name, std::string why) {
  std::erase_if(gone_, [&](const auto& each) { return each.first == name; });
  if (gone_.size() == kRemembered) gone_.pop_front();
  gone_.emplace_back(name, std::move(why));
}

// Takes the name away: the slot is free once nobody uses it.
void AdapterRegistry::Retire(std::size_t slot) {
  if (slots_[slot].uses == 0) {
    slots_[slot] = {};
  } else {
    slots_[slot].state = State::kRetired;
    slots_[slot].pinned = false;
  }
}

void AdapterRegistry::Release(std::size_t slot) noexcept {
  const std::lock_guard lock(mutex_);
  Slot& of = slots_[slot];
  --of.uses;
  if (of.uses == 0 && of.state == State::kRetired) of = {};
  changed_.notify_all();
}

}  // namespace layercast
