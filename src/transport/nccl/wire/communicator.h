// An NCCL communicator of a publisher and its receivers, for one epoch. It never blocks: whoever begins something polls
// for its end, and the destructor aborts what is under way. Used by both ends of the channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/device/channel_device.h"
#include "src/transport/nccl/wire/nccl_library.h"

namespace layercast::nccl_channel {

inline constexpr int kPublisherRank = 0;

// A rank's place in an epoch. Value.
struct Membership {
  std::uint64_t epoch = 0;  // its number: a publisher counts its epochs
  int ranks = 0;            // the publisher and its receivers
  int rank = 0;
  ncclUniqueId id{};
};

// Bytes that NCCL is to move. Value.
struct Transfer {
  std::byte* memory = nullptr;  // of the device
  std::size_t bytes = 0;
  int receiver = 0;  // the receiver's rank; only for Send
};

// Throws kUnavailable.
ncclUniqueId MakeUniqueId(NcclLibrary& library);

// Resource; one thread only. All functions throw kUnavailable with NCCL's words. They make the device the thread's
// current one for every call of NCCL, whose own CUDA runtime would otherwise open another.
class Communicator {
 public:
  // Begins to set the communicator up. It stands once Settled() says so, for which all other ranks must do the same.
  Communicator(NcclLibrary& library, ChannelDevice& device, const Membership& membership);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Whether NCCL is done with what was begun last (setting up, or a group): only then may the next thing begin. The
  // transfers of a group are in the stream from then on, and not before.
  bool Settled();
  // Each call begins one NCCL group. All ranks must begin the transfers in which they take part in the same order: in
  // what the publisher sends, the receiver takes part; in what it broadcasts, all ranks do.
  void Send(std::span<const Transfer> transfers, const CopyStream& stream);
  void Receive(std::span<const Transfer> transfers, const CopyStream& stream);
  void Broadcast(std::span<const Transfer> transfers, const CopyStream& stream);

 private:
  template <typename Call>
  void Group(std::span<const Transfer> transfers, const Call& call);
  void Expect(ncclResult_t result, const char* call);
  void Abort() noexcept;

  NcclLibrary& library_;
  ChannelDevice& device_;
  ncclComm_t comm_ = nullptr;
  bool settled_ = false;
};

}  // namespace layercast::nccl_channel
