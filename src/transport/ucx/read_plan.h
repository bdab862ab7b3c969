// How a chunk is read: the runs of its regions' rows, each from where it lies in its tensor to its place in the packed
// destination.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "src/tensor/region.h"

namespace layercast::ucx_channel {

// Value; one thread only.
class ReadPlan {
 public:
  ReadPlan() = default;
  explicit ReadPlan(std::span<const Region> regions);

  struct Run {
    std::uint32_t tensor = 0;
    std::uint64_t offset = 0;  // in the tensor
    std::uint64_t to = 0;      // in the destination
    std::uint64_t bytes = 0;
  };
  bool done() const { return region_ == regions_.size(); }
  // The next bytes that lie together, at most so many, which is not 0; not after the end.
  Run Take(std::uint64_t most);
  // What has to be granted: the tensors of which there are bytes to read.
  const std::set<std::uint32_t>& tensors() const { return tensors_; }

 private:
  // As one row where the rows lie without gaps.
  static Region Joined(Region region);
  void NextRow();

  std::vector<Region> regions_;  // none is empty
  std::set<std::uint32_t> tensors_;
  std::size_t region_ = 0;
  std::uint64_t row_ = 0;
  std::uint64_t column_ = 0;
  std::uint64_t to_ = 0;
};

}  // namespace layercast::ucx_channel
