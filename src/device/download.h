// Brings bytes from a device to the host, a block at a time, in order: while one is looked at the next is on its way.
// For what the host computes of them, and for captured buffers read back.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "src/device/device_stream.h"
#include "src/device/gathered_bytes.h"

namespace layercast {

// Resource; one thread only. Takes its memory at the first use, unless it was opened before, and keeps it. The stream
// outlives it.
class Download {
 public:
  using Visit = std::function<void(std::span<const std::byte> bytes)>;

  Download(DeviceStream& stream, std::size_t block_bytes) : stream_(stream), block_bytes_(block_bytes) {}
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;
  ~Download();

  // Takes the pinned memory, as UploadRing does.
  void Open();

  // `visit` sees the bytes in order, in as many calls as it takes, once at least: during this call and later ones, the
  // last by Finish.
  void Read(const std::byte* from, std::size_t bytes, const Visit& visit);
  // The same of bytes that lie in no one run. They are gathered during this call.
  void Read(const GatheredBytes& from, const Visit& visit);
  void Finish();
  // What was asked for and not looked at yet is forgotten.
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
