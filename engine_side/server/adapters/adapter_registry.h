// Which adapter each slot of an engine holds, said in the engine's process alone: ranks know slots by their numbers.
// An adapter is loaded into a slot without a name, which is then given the name in one step, while sequences that are
// under way keep the slot that they began with, by their use counts. Used by loads and by the generator.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/control/json_forms.h"

namespace layercast {

// What becomes of sequences under way when their adapter gets another version (`--adapter-switch`).
enum class AdapterSwitch : std::uint8_t {
  kFinish,  // they keep their version to their end
  kKeep,    // they go on with the new one, over keys and values of the old one
  kAbort,   // they end as aborted
};

// "finish", "keep" or "abort". Throws kInvalidArgument for any other name.
AdapterSwitch AdapterSwitchNamed(const std::string& name);

// An adapter's version in a slot. Value.
struct SlottedAdapter {
  std::string name;
  Version version{};
  std::optional<Version> base{};  // the version that it was trained on, if it says so
  Json about = Json::object();    // what its load reported, for lists
};

class AdapterRegistry;

// A sequence's hold on a slot, which is not written while anyone holds it. Resource; move-only. The registry outlives
// it.
class AdapterLease {
 public:
  AdapterLease() = default;  // of no adapter: the base
  AdapterLease(AdapterRegistry& registry, std::size_t slot, std::string name, Version version)
      : registry_(&registry), slot_(slot), name_(std::move(name)), version_(std::move(version)) {}
  AdapterLease(AdapterLease&& other) noexcept { *this = std::move(other); }
  AdapterLease& operator=(AdapterLease&& other) noexcept;
  ~AdapterLease() { GiveBack(); }

  explicit operator bool() const { return registry_ != nullptr; }
  std::int32_t slot() const { return registry_ == nullptr ? -1 : static_cast<std::int32_t>(slot_); }
  const std::string& name() const { return name_; }
  const Version& version() const { return version_; }

 private:
  void GiveBack() noexcept;

  AdapterRegistry* registry_ = nullptr;
  std::size_t slot_ = 0;
  std::string name_;
  Version version_;
};

// Resource; thread-safe.
class AdapterRegistry {
 public:
  // With no slots, every call throws kFailedPrecondition, which says which flag gives the engine some.
  AdapterRegistry(std::size_t slots, AdapterSwitch on_switch) : on_switch_(on_switch), slots_(slots) {}

  std::size_t size() const { return slots_.size(); }

  // For loads. Take returns a slot to fill for `name`: a free one, else that of the adapter that was used least
  // recently, is neither pinned nor in use, and has another name; that adapter is gone then. If there is none it waits
  // for one. Throws kResourceExhausted, naming who holds the slots, once the deadline is over or waiting cannot help.
  std::size_t Take(const std::string& name, Deadline deadline);
  // Names the slot that was taken. If another slot had the name, that one is free once nobody uses it. `with_base`: its
  // base is committed in the same moment, so sequences that go on, go on with both.
  void Name(std::size_t slot, SlottedAdapter adapter, bool pin, bool with_base = false);
  void GiveBack(std::size_t slot);  // one that was taken, and could not be filled

  // These throw kNotFound, with the names that there are, for a name that no slot has. Unload takes the name away at
  // once. Pin exempts from eviction; it throws kFailedPrecondition if no slot would be left to load into.
  void Unload(const std::string& name);
  void Pin(const std::string& name, bool pin);
  // Returns once no slot that lost this name is in use, or throws kDeadlineExceeded.
  void WaitUnused(const std::string& name, Deadline deadline);
  // All adapters are gone, with the memory of their ranks.
  void Forget(const std::string& why);

  // For sequences. Throws kNotFound as above.
  void Expect(const std::string& name) const;
  AdapterLease Lease(const std::string& name);
  // What a lease becomes now that its adapter may have another version: itself, or a lease of the new one, or nullopt
  // if the sequence must end.
  std::optional<AdapterLease> Renewed(AdapterLease lease);
  // Grows whenever a name gets another version: whether it is worth asking Renewed.
  std::uint64_t switches() const;

  std::optional<Version> VersionOf(const std::string& name) const;  // empty: no slot has that name
  // The adapters whose stated base is another version than `base`.
  std::vector<std::string> NotOf(const Version& base) const;
  // [{"name", "version", "base", "slot", "state", "uses", "pinned", ...}], named ones by name, then retired ones; and
  // what was evicted last.
  Json List() const;

 private:
  friend class AdapterLease;
  enum class State : std::uint8_t { kFree, kFilling, kServed, kRetired };
  struct Slot {
    State state = State::kFree;
    SlottedAdapter adapter{};
    std::size_t uses = 0;
    std::uint64_t last_use = 0;
    bool pinned = false;
    bool left_behind = false;  // its base is no longer served: no sequence may finish with it
  };

  void ExpectSlots() const;
  std::optional<std::size_t> Find(const std::string& name) const;  // served under that name
  std::size_t Named(const std::string& name) const;
  AdapterLease LeaseOf(std::size_t slot);
  std::optional<std::size_t> FreeOrEvicted(const std::string& name);
  bool CanBecomeFree(const std::string& name) const;
  std::string WhoHolds() const;
  void NoteGone(const std::string& name, std::string why);
  void Retire(std::size_t slot);
  void Release(std::size_t slot) noexcept;

  const AdapterSwitch on_switch_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;                               // guarded by mutex_, as all below
  std::deque<std::pair<std::string, std::string>> gone_;  // names that are no more, and why; the latest are last
  std::uint64_t uses_ = 0;                                // so far: a clock for last_use
  std::uint64_t switches_ = 0;
};

}  // namespace layercast
