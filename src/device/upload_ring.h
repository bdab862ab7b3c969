// Pinned blocks through which bytes go to a device. A block is written again only when the stream is past everything
// that reads it, and this is the only place where uploading waits. Used by all that uploads.
#pragma once

#include <cstddef>
#include <vector>

#include "src/device/device_stream.h"

namespace layercast {

// Resource; one thread only. Takes its memory at the first use, or in Open, and keeps it. The stream must outlive it.
class UploadRing {
 public:
  static constexpr std::size_t kBlocks = 4;

  UploadRing(DeviceStream& stream, std::size_t block_bytes) : stream_(stream), block_bytes_(block_bytes) {}
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;
  ~UploadRing();

  // Takes the memory. Allocating pinned memory may wait for everything that runs on the device, so this is best done
  // while nothing does.
  void Open();

  // Room for some bytes, with as much device memory beside it for bytes that do not go straight to their place. It must
  // be written at once, and may be read by what is queued before the next Take.
  struct Slot {
    std::byte* pinned;
    std::byte* device;
  };
  // `bytes` is at most block_bytes().
  Slot Take(std::size_t bytes);
  std::size_t block_bytes() const { return block_bytes_; }

 private:
  struct Block {
    Buffer memory;
    DeviceStream::Ticket read = 0;  // where the stream is past what reads the block
  };

  DeviceStream& stream_;
  const std::size_t block_bytes_;
  std::vector<Block> blocks_;
  Buffer device_;  // one for all blocks: the stream itself keeps their uses apart
  std::size_t current_ = 0;
  std::size_t used_ = 0;  // bytes of the current block
};

}  // namespace layercast
