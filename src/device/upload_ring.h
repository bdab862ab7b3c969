// Pinned blocks through which bytes go to a device. A block is written again only when the stream is past everything
// that reads it: the one place where uploading waits.
#pragma once

#include <cstddef>
#include <vector>

#include "src/device/device_stream.h"

namespace layercast {

// Resource; one thread only. Takes its memory at the first use, unless it was opened before, and keeps it. The stream
// outlives it.
class UploadRing {
 public:
  static constexpr std::size_t kBlocks = 4;

  UploadRing(DeviceStream& stream, std::size_t block_bytes) : stream_(stream), block_bytes_(block_bytes) {}
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;
  ~UploadRing();

  // Takes the memory: pinned memory may wait for all that runs on the device, and is best taken while nothing does.
  void Open();

  // Room for some bytes, and as much device memory beside it, for those that do not go straight to their place. To be
  // written at once, and read by what is queued before the next Take.
  struct Slot {
    std::byte* pinned;
    std::byte* device;
  };
  // At most block_bytes().
  Slot Take(std::size_t bytes);
  std::size_t block_bytes() const { return block_bytes_; }

 private:
  struct Block {
    Buffer memory;
    DeviceStream::Ticket read = 0;  // where the stream has read it
  };

  DeviceStream& stream_;
  const std::size_t block_bytes_;
  std::vector<Block> blocks_;
  Buffer device_;  // one for all blocks: the stream itself keeps their uses apart
  std::size_t current_ = 0;
  std::size_t used_ = 0;  // of the current block
};

}  // namespace layercast
