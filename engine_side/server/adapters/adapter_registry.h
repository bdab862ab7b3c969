// Where each adapter of an engine is, said in the engine's process alone: ranks know places by their numbers. The first
// places are slots, which forward passes read; the others are host copies. An adapter's version is in one place.
//
// It is loaded into a slot without a name, which is then given the name in one step, while sequences that are under way
// keep the slot that they began with, by their use counts. Where there are host copies, what has to leave its slot
// moves to one, and comes back when a sequence asks for it. Used by loads, by promotions and by the generator.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine_side/server/adapters/adapter_holds.h"
#include "engine_side/server/group/engine_options.h"
#include "layercast/error.h"
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

// Resource; thread-safe.
class AdapterRegistry {
 public:
  // Who wants a slot.
  enum class For : std::uint8_t {
    kLoad,       // of a version that the engine does not have
    kPromotion,  // of an adapter in a host copy. Promotions are made one at a time
  };
  // A slot to fill; or an adapter that has to move to a host copy before there is one.
  using Room = std::variant<AdapterFill, AdapterMove>;

  // With no slots, every call throws kFailedPrecondition, which says which flag gives the engine some.
  AdapterRegistry(std::size_t slots, AdapterSwitch on_switch, std::size_t host_adapters = 0)
      : on_switch_(on_switch), slots_(slots), host_adapters_(host_adapters) {
    places_.resize(slots + HostCopiesFor(host_adapters));
  }

  std::size_t size() const { return slots_; }
  std::size_t host_adapters() const { return host_adapters_; }

  // Finds room in a slot for `name`: a free one, else that of the adapter which was used least recently and is neither
  // pinned nor in use. That adapter moves to a host copy; without host copies it is gone. A load may need another
  // adapter's host copy for it, of the one that was used least recently and is not pinned: that one is gone then. A
  // promotion costs no other adapter its place. If there is no room it waits for some. A promotion that waits closes
  // the slot that is next to be given up to sequences which come later, so that it becomes free. Throws
  // kResourceExhausted, naming who holds the slots, once the deadline is over or waiting cannot help.
  Room MakeRoom(const std::string& name, For purpose, Deadline deadline);
  // Names a slot that was filled. If another place had the name, that one is free once nobody uses it. If the engine
  // has more adapters by that than it is to keep, those that were used least recently are gone. `with_base`: its base
  // is committed in the same moment, so sequences that go on, go on with both. Throws kUnavailable if the slot's memory
  // was lost since it was taken.
  void Name(AdapterFill slot, SlottedAdapter adapter, bool pin, bool with_base = false);

  // The adapter has arrived in a host copy. Returns its old slot, to be filled for `name`; empty if somebody holds it
  // still.
  AdapterFill Demoted(AdapterMove move, const std::string& name, For purpose);
  // Begins to bring an adapter into a slot. Empty if it is in one by now. Throws kNotFound.
  std::optional<AdapterMove> MoveInto(AdapterFill slot, const std::string& name);
  // It has arrived there. Returns a hold on it, so that it stays until those are told who wait for it. Throws kNotFound
  // if it was unloaded meanwhile, and kUnavailable as Name does.
  AdapterLease Promoted(AdapterMove move);

  // These throw kNotFound, with the names that there are, for a name that no place has. Unload takes the name away at
  // once. Pin exempts from eviction: a slot is kept, and a host copy until the adapter is in a slot. It throws
  // kFailedPrecondition if no slot would be left to load into.
  void Unload(const std::string& name);
  void Pin(const std::string& name, bool pin);
  // Returns once no place that lost this name is in use, or throws kDeadlineExceeded.
  void WaitUnused(const std::string& name, Deadline deadline);
  // The slots' memory was lost, for the reason `why`, and with it all adapters that are in slots.
  void Forget(const std::string& why);

  // Throws kNotFound unless there is an adapter of that name.
  void Expect(const std::string& name) const;
  // For sequences, which are numbered as they came. Empty: this one has to wait, since the adapter is in no slot, or
  // its slot is closed to it. Throws kNotFound.
  AdapterLease Admit(const std::string& name, std::uint64_t sequence);
  // Holds an adapter that is in a slot; empty if it is in none. Throws kNotFound.
  AdapterLease InSlot(const std::string& name);
  // Holds an adapter in whatever place. Throws kNotFound.
  AdapterLease Lease(const std::string& name);
  // What a sequence goes on with when its adapter has another version by now: the same hold, one on the new slot, or
  // nullopt, if it is to end.
  std::optional<AdapterLease> Renewed(AdapterLease lease);
  // Counts the names that got other slots: a sequence has to ask Renewed when it has changed.
  std::uint64_t switches() const;

  // What a promotion is refused with that gets no slot, naming who holds them.
  Error NoSlotFor(const std::string& name) const;
  std::optional<Version> VersionOf(const std::string& name) const;  // empty: no place has that name
  // The adapters whose stated base is another version than `base`.
  std::vector<std::string> NotOf(const Version& base) const;
  // [{"name", "version", "base", "tier", "slot", "state", "uses", "pinned", ...}], named ones by name, then retired
  // ones; and what was evicted last.
  Json List() const;

 private:
  friend class AdapterLease;
  friend class AdapterFill;
  friend class AdapterMove;
  enum class State : std::uint8_t { kFree, kFilling, kServed, kRetired };
  struct Place {
    State state = State::kFree;
    SlottedAdapter adapter{};
    std::size_t uses = 0;
    std::uint64_t last_use = 0;
    bool pinned = false;
    bool left_behind = false;               // its base is no longer served: no sequence may finish with it
    bool moving = false;                    // it is being copied to another place: nobody begins to use it
    For filled_for = For::kLoad;            // while it is filled
    bool lost = false;                      // while it is filled: its memory is not what it was
    std::optional<std::uint64_t> closed{};  // to sequences after this one, for a promotion that waits
  };

  // Which adapter has to leave, and who gets its place (adapter_room.cc).
  std::optional<Room> RoomNow(const std::string& name, For purpose);
  std::optional<std::size_t> LeastRecent(std::size_t begin, std::size_t end, const std::string& name,
                                         For purpose) const;
  std::optional<std::size_t> FreeAmong(std::size_t begin, std::size_t end) const;
  bool MayLeave(const Place& place, const std::string& name, For purpose) const;
  bool IsAwaited(const Place& place) const;
  bool CanBecomeFree(const std::string& name) const;
  void CloseNext();
  void Open();
  void DropBeyondCapacity(const std::string& name);
  void Evict(std::size_t place, const std::string& name);
  AdapterFill Fill(std::size_t place, const std::string& name, For purpose);
  void Rename(AdapterMove& move);
  Error Refusal(const std::string& name, For purpose) const;
  std::string WhoHolds() const;

  void ExpectSlots() const;
  bool IsSlot(std::size_t place) const { return place < slots_; }
  std::optional<std::size_t> Find(const std::string& name) const;  // served under that name
  std::size_t Named(const std::string& name) const;
  AdapterLease LeaseOf(std::size_t place);
  void NoteGone(const std::string& name, std::string why);
  void Retire(std::size_t place);
  void FreeIfUnused(Place& place);
  void Release(std::size_t place) noexcept;
  void GiveBack(std::size_t place) noexcept;
  void GiveUp(std::size_t moving) noexcept;

  const AdapterSwitch on_switch_;
  const std::size_t slots_;
  const std::size_t host_adapters_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Place> places_;                             // guarded by mutex_, as all below: slots, then host copies
  std::deque<std::pair<std::string, std::string>> gone_;  // names that are no more, and why; the latest are last
  std::uint64_t uses_ = 0;                                // so far: a clock for last_use
  std::uint64_t latest_ = 0;                              // number of the latest sequence that asked for an adapter
  std::uint64_t switches_ = 0;
};

}  // namespace layercast
