// What comes to a receiver in one epoch: groups of pieces that were announced to it, by NCCL into slots, and from
// there to where the caller wants the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "src/base/deadline.h"
#include "src/transport/nccl/epoch.h"
#include "src/transport/nccl/messages.h"
#include "src/transport/nccl/nccl_transport.h"
#include "src/transport/nccl/slots.h"
#include "src/transport/requests_under_way.h"

namespace layercast::nccl_channel {

struct Chunk : RequestedChunk {
  std::uint64_t order = 0;           // of its request, among all
  std::vector<std::byte> message{};  // that asks for it: once in every epoch, until it is whole
  bool reached = false;              // by the device, which then copies there by itself
  std::size_t announced = 0;         // bytes, as is what has landed; of this epoch
  std::size_t landed = 0;

  bool whole() const { return landed == destination.size(); }
};

// Resource; one thread only. Its destructor aborts the epoch; nothing is written to any destination after. Chunks stay
// where they are while pieces of theirs are under way.
class Intake {
 public:
  struct Incoming {
    Chunk* chunk;
    std::size_t offset;
    std::size_t bytes;
    Slots::Lent slot{};        // from when it is taken
    std::uint64_t copied = 0;  // the mark in the stream of copies
  };

  // Throws kUnavailable.
  Intake(const NcclParts& parts, Slots& slots, const Membership& membership)
      : parts_(parts), slots_(slots), epoch_(*parts.library, *parts.device, membership) {}

  bool stands() const { return stands_; }
  // Pieces that were announced and not taken.
  std::size_t num_announced() const;
  void Announce(bool broadcast, std::vector<Incoming> pieces) { announced_.push_back({broadcast, std::move(pieces)}); }
  // Moves pieces on; true when one did. `go`: the next group has been queued here; `whole`: a chunk is, and may go.
  // Throws when NCCL, or the device, has failed.
  bool Progress(const std::function<void()>& go, const std::function<void(Chunk&)>& whole);
  // Whether the device or NCCL is at work, of which no descriptor tells.
  bool busy() const { return !stands_ || !receiving_.empty() || !landing_.empty(); }

 private:
  struct Group {
    bool broadcast;
    std::vector<Incoming> pieces;
  };

  // The stages of a piece: each moves those that can go on to the next.
  bool Land(const std::function<void(Chunk&)>& whole);
  bool CopyOut(bool settled);
  bool Receive(bool settled, const std::function<void()>& go);

  const NcclParts& parts_;
  Slots& slots_;
  bool stands_ = false;
  std::deque<Group> announced_;
  Groups<Incoming> receiving_;
  std::deque<Incoming> landing_;
  Epoch epoch_;  // destroyed first: it works on the memory of all these
};

}  // namespace layercast::nccl_channel
