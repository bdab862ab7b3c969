// One of the lists of bytes that a frame is made of: as it is, or Huffman-coded by zstd in independent frames of at
// most 1 MiB, whichever is less. FORMAT.md specifies their bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "src/base/bytes/bytes.h"

namespace layercast {

// What was read: bytes of the frame, or what they were decompressed to. Value; borrows the frame's bytes.
class StreamBytes {
 public:
  StreamBytes() = default;
  explicit StreamBytes(std::span<const std::byte> borrowed) : borrowed_(borrowed) {}
  explicit StreamBytes(std::vector<std::byte> owned) : owned_(std::move(owned)), owns_(true) {}

  std::span<const std::byte> bytes() const { return owns_ ? std::span<const std::byte>(owned_) : borrowed_; }

 private:
  std::vector<std::byte> owned_;
  std::span<const std::byte> borrowed_;
  bool owns_ = false;
};

// Writes streams. Resource; one thread only.
class StreamWriter {
 public:
  // With `compress`, streams are tried to be made smaller.
  explicit StreamWriter(bool compress);
  ~StreamWriter();
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  void Write(std::span<const std::byte> stream, ByteWriter& to);
  // Elements, whose bytes are split into planes before they are compressed: all first bytes, all second ones, ...
  void WriteElements(std::span<const std::byte> elements, std::size_t element_bytes, ByteWriter& to);

 private:
  struct Compressor;
  std::unique_ptr<Compressor> compressor_;
};

// Throws kCorrupt unless it has between `least` and `most` bytes, which is looked at before anything is allocated.
StreamBytes ReadStream(ByteReader& reader, std::size_t least, std::size_t most, std::string_view field);
// What WriteElements wrote, of exactly so many bytes.
StreamBytes ReadElements(ByteReader& reader, std::size_t bytes, std::size_t element_bytes, std::string_view field);

}  // namespace layercast
