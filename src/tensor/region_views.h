// Lists of views whose bytes belong together, one after the other, as a chunk's do.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/tensor/region.h"

namespace layercast {

std::size_t NumBytes(std::span<const RegionView> views);
// Copies all views' bytes, packed, to `destination`, which has room for NumBytes. Returns views of the copies.
std::vector<RegionView> PackAll(std::span<const RegionView> views, std::byte* destination);

// Some of a list's bytes, from byte `begin` of them all on.
struct ViewShare {
  std::size_t begin = 0;
  std::vector<RegionView> views;
};
// Cuts all bytes into shares of `bytes`, or somewhat more or fewer. Rows that lie apart are not cut.
std::vector<ViewShare> SharesOf(std::span<const RegionView> views, std::size_t bytes);

// Walks the bytes of views, one after the other. Value; borrows the views.
class PackedBytes {
 public:
  // Begins at byte `first` of them all.
  PackedBytes(std::span<const RegionView> views, std::size_t first);

  // The bytes that lie one behind the other from here on; none at the end.
  std::span<const std::byte> Run() const;
  // Goes on by so many bytes of Run().
  void Skip(std::size_t bytes);
  // Copies as many bytes as fit, or as there are, and goes on behind them. Returns how many.
  std::size_t Read(std::span<std::byte> to);

 private:
  std::span<const RegionView> views_;  // the first is where the walk is
  std::size_t row_ = 0;                // of the first view; if its rows lie one behind the other, they are one
  std::size_t at_ = 0;                 // byte of the row
};

}  // namespace layercast
