// What one end has on its device for one epoch, except memory: a communicator, a stream for NCCL and one for copies.
// Nothing of an epoch is used again in the next. Part of Dispatch and of Intake.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/deadline.h"
#include "src/device/channel_device.h"
#include "src/transport/nccl/wire/communicator.h"

namespace layercast::nccl_channel {

// The groups of transfers that are on their way through NCCL, each of some `Item`s. One thread only.
template <typename Item>
class Groups {
 public:
  bool empty() const { return launching_.empty() && running_.empty(); }
  // Whether a group may begin: the last one has been launched.
  bool MayBegin() const { return launching_.empty(); }
  // To be called when the communicator has been told to begin a group of these items.
  void Add(std::vector<Item> items) {
    if (running_.empty()) moved_ = Deadline::Clock::now();
    launching_ = std::move(items);
  }
  // The items of the next group that is through; empty if none is. `settled`: what Communicator::Settled says now.
  std::vector<Item> TakeDone(bool settled, CopyStream& stream) {
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
  // For how long no group has come through although some are on their way.
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
  Epoch(NcclLibrary& library, ChannelDevice& device, const Membership& membership)
      : copies_(device.MakeStream()), transfers_(device.MakeStream()), communicator_(library, device, membership) {}

  Communicator& communicator() { return communicator_; }
  CopyStream& copies() { return *copies_; }
  CopyStream& transfers() { return *transfers_; }

 private:
  // Destroyed from last to first: the communicator goes first, which ends what the streams wait for.
  std::unique_ptr<CopyStream> copies_;
  std::unique_ptr<CopyStream> transfers_;
  Communicator communicator_;
};

}  // namespace layercast::nccl_channel
