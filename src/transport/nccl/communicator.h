// A communicator of two ranks, a publisher and one of its receivers: one epoch. It never blocks; what it is told to do
// is polled for, and its end aborts what is under way. Both ends of the channel have one.
#pragma once

#include <cstddef>
#include <span>

#include "src/transport/device/staging.h"
#include "src/transport/nccl/nccl_library.h"

namespace layercast::nccl_channel {

inline constexpr int kPublisherRank = 0;
inline constexpr int kReceiverRank = 1;

struct Transfer {
  std::byte* memory = nullptr;  // of the device
  std::size_t bytes = 0;
};

// Throws kUnavailable.
ncclUniqueId MakeUniqueId(NcclLibrary& library);

// Resource; one thread only. Everything throws kUnavailable with NCCL's words.
class Communicator {
 public:
  // Begins to set it up: it stands once Settled() says so, and the other rank has done the same.
  Communicator(NcclLibrary& library, StagingDevice& device, const ncclUniqueId& id, int rank);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Whether what was begun last, setting up or a group, is done with: only then may the next begin. A group's transfers
  // are in the stream from then on, and not before.
  bool Settled();
  // One group: the peer must have the same transfers in one group of the other kind.
  void Send(std::span<const Transfer> transfers, const StagingStream& stream);
  void Receive(std::span<const Transfer> transfers, const StagingStream& stream);

 private:
  template <typename Call>
  void Group(std::span<const Transfer> transfers, const Call& call);
  void Expect(ncclResult_t result, const char* call);

  NcclLibrary& library_;
  const int peer_;
  ncclComm_t comm_ = nullptr;
  bool settled_ = false;
};

}  // namespace layercast::nccl_channel
