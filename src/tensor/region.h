// Pieces of tensors. A Region says which bytes of which tensor; a RegionView says where they lie now. Used wherever
// chunks are made, moved and taken apart. Values; the memory is borrowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace layercast {

// `rows` runs of `row_bytes` bytes, `stride` bytes apart, the first at `offset` inside tensor number `tensor`
// of the manifest. A contiguous piece has rows == 1.
struct Region {
  std::uint32_t tensor = 0;
  std::uint64_t offset = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t stride = 0;

  std::uint64_t num_bytes() const { return row_bytes * rows; }
  bool operator==(const Region&) const = default;
};

struct RegionView {
  const std::byte* base = nullptr;
  std::size_t row_bytes = 0;
  std::size_t rows = 0;
  std::size_t stride = 0;  // bytes from one row to the next; == row_bytes when packed

  std::size_t num_bytes() const { return row_bytes * rows; }
  const std::byte* row(std::size_t index) const { return base + index * stride; }
};

// A view of one run of bytes.
inline RegionView AsView(std::span<const std::byte> bytes) {
  return {.base = bytes.data(), .row_bytes = bytes.size(), .rows = 1, .stride = bytes.size()};
}

// A view of `rows` runs of `row_bytes` bytes, one after the other.
inline RegionView PackedAt(const std::byte* base, std::size_t row_bytes, std::size_t rows) {
  return {.base = base, .row_bytes = row_bytes, .rows = rows, .stride = row_bytes};
}

// Throws kInvalidArgument, naming the tensor's number and both bounds, unless the region lies inside a
// tensor of `tensor_bytes` bytes; safe against overflow, so it may be called on what came over the wire.
void CheckInside(const Region& region, std::uint64_t tensor_bytes);

// Where a region lies in a tensor of `bytes` bytes at `base`. Throws as CheckInside does.
RegionView ViewAt(const std::byte* base, std::uint64_t bytes, const Region& region);

// Copies the view's bytes, packed row after row, to `destination` (num_bytes() of them).
void Pack(const RegionView& view, std::byte* destination);

}  // namespace layercast
