// Copies what is offered into the arena, in the order of one stream of the publisher's device, and records an event
// behind it that other processes can ask about. Part of CudaIpcOfferingEnd.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "layercast/memory.h"
#include "src/transport/channel/channel.h"
#include "src/transport/cuda_ipc/segments/driver.h"

namespace layercast::cuda_ipc_channel {

// Resource; thread-safe. Its destructor waits for what is queued.
class CopyIn {
 public:
  // Throws what the device throws. If only the event cannot be made, goes without one. Whoever waits for the device
  // complains in the log each time that `patience` has passed.
  CopyIn(IpcDriver& driver, ChannelDevice& device, std::chrono::milliseconds patience = std::chrono::seconds(10));

  // The handle of the event, for other processes; null if there is no event.
  const IpcHandle* event() const { return event_ == nullptr ? nullptr : &handle_; }

  // Queues a copy of each tensor to its place in the arena (`to`), and returns the mark behind them. When it returns,
  // tensors that the device does not reach by itself have been read; the others are read until the mark is reached.
  // When it throws, nothing is read or written any more.
  std::uint64_t Queue(const Offer& offer, std::span<std::byte* const> to);
  bool Reached(std::uint64_t mark);
  // Whether everything that was ever queued has been copied.
  bool Idle();
  // Waits until the mark behind the copies of that offer is reached, however long the device takes: its memory is not
  // to be freed while the device may read it. Throws what went wrong in the stream: then nothing is read any more.
  void Await(std::uint64_t mark, std::uint64_t offer_id);

 private:
  struct PinnedPiece {
    Buffer memory;
    std::uint64_t read = 0;  // once this mark is reached, it has been read and may be written again
  };

  void CopyTensor(const OfferedTensor& from, std::byte* to, std::uint64_t offer_id);
  void CopyPageable(const OfferedTensor& from, std::byte* to, std::uint64_t offer_id);
  std::uint64_t Copy(std::byte* to, const std::byte* from, std::size_t bytes);

  ChannelDevice& device_;
  const std::chrono::milliseconds patience_;
  std::mutex queueing_;              // guards what follows
  std::vector<PinnedPiece> pieces_;  // taken in turn
  std::size_t next_ = 0;
  std::mutex mutex_;  // guards what follows; held for one operation at a time, so that nobody waits for a whole offer
  std::unique_ptr<CopyStream> stream_;
  std::unique_ptr<IpcEvent> event_;
  std::uint64_t last_ = 0;
  IpcHandle handle_{};  // immutable
};

}  // namespace layercast::cuda_ipc_channel
