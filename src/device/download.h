// Brings bytes from a device to the host, a block at a time and in order: while one block is looked at, the next is on
// its way. Used for what the host computes from them, and to read captured buffers back.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "src/device/device_stream.h"
#include "src/device/gathered_bytes.h"

namespace layercast {

// Resource; one thread only. Takes its memory at the first use, or in Open, and keeps it. The stream must outlive it.
class Download {
 public:
  using Visit = std::function<void(std::span<const std::byte> bytes)>;

  Download(DeviceStream& stream, std::size_t block_bytes) : stream_(stream), block_bytes_(block_bytes) {}
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;
  ~Download();

  // Takes the pinned memory, which is best done early; see UploadRing::Open.
  void Open();

  // Reads contiguous bytes. `visit` sees them in order, in one or several calls, which are made during this and later
  // calls of this object, the last of them by Finish.
  void Read(const std::byte* from, std::size_t bytes, const Visit& visit);
  // Reads bytes that are not one contiguous run. They are gathered during this call.
  void Read(const GatheredBytes& from, const Visit& visit);
  void Finish();
  // Forgets what was asked for and was not visited yet.
  void Drop();

 private:
  struct Part {
    std::size_t offset, bytes;
    Visit visit;
  };
  struct Block {
    Buffer pinned;
    Buffer packed;  // on the device
    std::size_t used = 0;
    std::vector<Part> parts;
    DeviceStream::Ticket arrived = 0;
  };
  Block& WithRoom(std::size_t bytes);
  void Turn();
  static void Append(Block& block, std::size_t bytes, const Visit& visit);

  DeviceStream& stream_;
  const std::size_t block_bytes_;
  std::array<Block, 2> blocks_;
  std::size_t current_ = 0;
};

}  // namespace layercast
