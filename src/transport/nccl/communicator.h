// A communicator of a publisher and its receivers: one epoch. It never blocks; what it is told to do is polled for, and
// its end aborts what is under way. Every end of the channel has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/transport/device/channel_device.h"
#include "src/transport/nccl/nccl_library.h"

namespace layercast::nccl_channel {

inline constexpr int kPublisherRank = 0;

// A rank's place in an epoch. Value.
struct Membership {
  std::uint64_t epoch = 0;  // a publisher's epochs are counted
  int ranks = 0;            // the publisher and its receivers
  int rank = 0;
  ncclUniqueId id{};
};

struct Transfer {
  std::byte* memory = nullptr;  // of the device
  std::size_t bytes = 0;
  int receiver = 0;  // its rank; what is received or broadcast needs none
};

// Throws kUnavailable.
ncclUniqueId MakeUniqueId(NcclLibrary& library);

// Resource; one thread only. Everything throws kUnavailable with NCCL's words. NCCL's own runtime finds the device
// current at every call, so that it opens no other for the thread.
class Communicator {
 public:
  // Begins to set it up: it stands once Settled() says so, and all other ranks have done the same.
  Communicator(NcclLibrary& library, ChannelDevice& device, const Membership& membership);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Whether what was begun last, setting up or a group, is done with: only then may the next begin. A group's transfers
  // are in the stream from then on, and not before.
  bool Settled();
  // One group each. All ranks must have the same ones in the same order, as far as they take part: of what the
  // publisher sends, its receiver; of what it broadcasts, everybody.
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
