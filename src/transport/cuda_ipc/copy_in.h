// Copies what is offered into the arena, in the order of one stream of the publisher's device, and records an event of
// all processes behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "layercast/memory.h"
#include "src/transport/channel.h"
#include "src/transport/cuda_ipc/driver.h"

namespace layercast::cuda_ipc_channel {

// Thread-safe. Its destructor waits for what is queued.
class CopyIn {
 public:
  // Throws what the device throws. Where CUDA makes no events for other processes, there is none.
  CopyIn(IpcDriver& driver, ChannelDevice& device);

  // Null: there is no event.
  const IpcHandle* event() const { return event_ == nullptr ? nullptr : &handle_; }

  // Queues copies of each tensor to memory of the arena. What the device does not reach by itself has been read when it
  // returns; the rest is read until the mark that is returned has been reached. When it throws, nothing is read any
  // more.
  std::uint64_t Queue(std::span<const OfferedTensor> from, std::span<std::byte* const> to);
  bool Reached(std::uint64_t mark);
  // Whether all that was ever queued is there.
  bool Idle();
  // Throws kDeadlineExceeded after ten seconds.
  void Await(std::uint64_t mark);

 private:
  struct PinnedPiece {
    Buffer memory;
    std::uint64_t read = 0;  // the mark from which it may be written again
  };

  void CopyPageable(const OfferedTensor& from, std::byte* to);
  std::uint64_t Copy(std::byte* to, const std::byte* from, std::size_t bytes);

  ChannelDevice& device_;
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
