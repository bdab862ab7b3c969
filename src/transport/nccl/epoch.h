// All that one end has on its device for one connection: a communicator, a stream for NCCL and one for copies, and the
// memory that pieces wait in. A new connection is a new epoch; nothing of an old one is used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "layercast/memory.h"
#include "src/base/deadline.h"
#include "src/transport/device/staging.h"
#include "src/transport/nccl/communicator.h"
#include "src/transport/nccl/messages.h"

namespace layercast::nccl_channel {

// Where a piece waits: in the device's memory, and in the host's where the device does not reach what it is for.
struct Slot {
  Buffer device;
  Buffer pinned;
};

// Groups of transfers on their way through NCCL, each of some `Item`s, with Transfer AsTransfer() each. Part of each
// end; one thread only.
template <typename Item>
class Groups {
 public:
  bool empty() const { return launching_.empty() && running_.empty(); }
  // Whether a group may begin: the last one has been launched.
  bool MayBegin() const { return launching_.empty(); }
  // `begin(transfers)` is the communicator's Send or Receive.
  template <typename Begin>
  void Add(std::vector<Item> items, const Begin& begin) {
    std::vector<Transfer> transfers;
    for (const Item& item : items) transfers.push_back(item.AsTransfer());
    begin(transfers);
    launching_ = std::move(items);
    if (running_.empty()) moved_ = Deadline::Clock::now();
  }
  // The items of the next group that is through; empty: none is. `settled`: what the communicator says now.
  std::vector<Item> TakeDone(bool settled, StagingStream& stream) {
    if (settled && !launching_.empty()) {
      running_.push_back({stream.Mark(), std::move(launching_)});
      launching_.clear();
    }
    if (running_.empty() || !stream.Reached(running_.front().mark)) return {};
    std::vector<Item> items = std::move(running_.front().items);
    running_.pop_front();
    moved_ = Deadline::Clock::now();
    return items;
  }
  // For how long nothing has come through, while something should.
  Deadline::Clock::duration Stalled() const {
    return empty() ? Deadline::Clock::duration::zero() : Deadline::Clock::now() - moved_;
  }

 private:
  struct Running {
    std::uint64_t mark;
    std::vector<Item> items;
  };
  std::vector<Item> launching_;  // begun, but perhaps not in the stream yet
  std::deque<Running> running_;
  Deadline::Clock::time_point moved_;
};

// Resource; one thread only. Its destructor aborts what is under way, and returns when nothing of it runs any more.
class Epoch {
 public:
  // Throws kUnavailable, kResourceExhausted.
  Epoch(NcclLibrary& library, StagingDevice& device, const ncclUniqueId& id, int rank)
      : device_(device),
        copies_(device.MakeStream()),
        transfers_(device.MakeStream()),
        communicator_(library, device, id, rank) {}

  StagingDevice& device() { return device_; }
  Communicator& communicator() { return communicator_; }
  StagingStream& copies() { return *copies_; }
  StagingStream& transfers() { return *transfers_; }

  bool has_spare() const { return !spare_.empty() || made_ < kPiecesUnderWay; }
  // Only when there is one.
  std::unique_ptr<Slot> TakeSpare();
  void GiveBack(std::unique_ptr<Slot> slot) { spare_.push_back(std::move(slot)); }
  // Made where it is needed first: where all copies reach their other side, none is.
  std::byte* PinnedOf(Slot& slot);

 private:
  StagingDevice& device_;
  // Destroyed last to first: the communicator first, which ends what the streams wait for, then these, then the slots.
  std::size_t made_ = 0;
  std::vector<std::unique_ptr<Slot>> spare_;
  std::unique_ptr<StagingStream> copies_;
  std::unique_ptr<StagingStream> transfers_;
  Communicator communicator_;
};

}  // namespace layercast::nccl_channel
