// How bytes come to a receiver in one epoch: groups of pieces that were announced to it come by NCCL into slots, and go
// from there to the caller's destination. Part of NcclFetchingEnd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "src/base/deadline.h"
#include "src/transport/channel/requests_under_way.h"
#include "src/transport/nccl/nccl_transport.h"
#include "src/transport/nccl/wire/epoch.h"
#include "src/transport/nccl/wire/nccl_messages.h"
#include "src/transport/nccl/wire/slots.h"

namespace layercast::nccl_channel {

// A chunk that was asked for.
struct Chunk : RequestedChunk {
  std::uint64_t order = 0;           // the number of its request, among all of this end
  std::vector<std::byte> message{};  // its request, which is repeated in every epoch until the chunk is whole
  bool reached = false;              // the device reaches the destination, and copies there by itself
  std::size_t announced = 0;         // bytes that were announced in this epoch
  std::size_t landed = 0;            // bytes that have landed in this epoch

  bool whole() const { return landed == destination.size(); }
};

// Resource; one thread only. Its destructor aborts the epoch; after that nothing is written to any destination. A chunk
// must stay at its address while pieces of it are under way.
class Intake {
 public:
  struct Incoming {
    Chunk* chunk;
    std::size_t offset;
    std::size_t bytes;
    Slots::Lent slot{};        // empty until NCCL is told to receive the piece
    std::uint64_t copied = 0;  // the mark in the stream of copies
  };

  // Throws kUnavailable.
  Intake(const NcclParts& parts, Slots& slots, const Membership& membership)
      : parts_(parts), slots_(slots), epoch_(*parts.library, *parts.device, membership) {}

  bool stands() const { return stands_; }
  // How many of the announced pieces NCCL has not been told to receive yet.
  std::size_t num_announced() const;
  void Announce(bool broadcast, std::vector<Incoming> pieces) { announced_.push_back({broadcast, std::move(pieces)}); }
  // Moves pieces on; true when one did. Calls `go` when the next group has been queued at this end, and `whole` with a
  // chunk that has come in full, which may then be destroyed. Throws when NCCL, or the device, has failed.
  bool Progress(const std::function<void()>& go, const std::function<void(Chunk&)>& whole);
  // Whether the device or NCCL is at work, of which no file descriptor tells.
  bool busy() const { return !stands_ || !receiving_.empty() || !landing_.empty(); }

 private:
  struct Group {
    bool broadcast;
    std::vector<Incoming> pieces;
  };

  // The stages of a piece: each function moves the pieces that can go on to the next stage.
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
