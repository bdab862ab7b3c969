// The one-sided reads that fetch a chunk: contiguous runs of its regions' rows, each with its place in its tensor and
// in the packed destination. Part of UcxReadingEnd.
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
  // The next contiguous bytes, at most `most`, which must not be 0. Only while not done().
  Run Take(std::uint64_t most);
  // The tensors of which there are bytes to read, which the publisher has to grant.
  const std::set<std::uint32_t>& tensors() const { return tensors_; }

 private:
  // The region as one row if its rows lie without gaps.
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
