#include "src/session/fetch/shared_schedule.h"

#include <algorithm>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/check.h"

namespace layercast {

TensorNumbers::TensorNumbers(std::span<const std::size_t> counts) : first_{0} {
  for (const std::size_t count : counts) first_.push_back(first_.back() + static_cast<std::uint32_t>(count));
}

std::uint32_t TensorNumbers::PublisherOf(std::uint32_t tensor) const {
  if (tensor >= first_.back()) {
    throw Error(ErrorCode::kInvalidArgument, "the schedule asks for tensor " + std::to_string(tensor) +
                                                 ", expected one of " + std::to_string(first_.back()));
  }
  return static_cast<std::uint32_t>(std::ranges::upper_bound(first_, tensor) - first_.begin() - 1);
}

SharedSchedule::SharedSchedule(const Schedule& whole, TensorNumbers numbers)
    : numbers_(std::move(numbers)),
      schedules_(numbers_.publishers()),
      chunk_of_(numbers_.publishers()),
      first_share_{0} {
  std::vector<std::vector<Region>> regions(numbers_.publishers());  // those of one chunk, by publisher
  std::vector<std::uint32_t> share(numbers_.publishers());
  for (const Chunk& chunk : whole.chunks()) {
    first_region_.push_back(chunk.first_region);
    for (Region region : whole.RegionsOf(chunk)) {
      const std::uint32_t publisher = numbers_.PublisherOf(region.tensor);
      region.tensor -= numbers_.FirstOf(publisher);
      if (regions[publisher].empty()) {
        share[publisher] = static_cast<std::uint32_t>(shares_.size() - first_share_.back());
        shares_.push_back({publisher, static_cast<std::uint32_t>(schedules_[publisher].chunks().size())});
      }
      regions[publisher].push_back(region);
      share_of_.push_back(share[publisher]);
    }
    for (std::size_t i = first_share_.back(); i < shares_.size(); ++i) {
      std::vector<Region>& of_share = regions[shares_[i].publisher];
      schedules_[shares_[i].publisher].Add(of_share);
      chunk_of_[shares_[i].publisher].push_back(static_cast<std::uint32_t>(first_share_.size() - 1));
      of_share.clear();
    }
    first_share_.push_back(shares_.size());
  }
  first_region_.push_back(whole.regions().size());
}

std::uint32_t SharedSchedule::FirstFrom(std::size_t publisher, std::uint32_t chunk) const {
  const std::vector<std::uint32_t>& chunks = chunk_of_[publisher];
  return static_cast<std::uint32_t>(std::ranges::lower_bound(chunks, chunk) - chunks.begin());
}

std::vector<RegionView> SharedSchedule::PutTogether(std::size_t chunk,
                                                    std::span<const std::vector<RegionView>> views) const {
  std::vector<std::size_t> next(views.size());
  std::vector<RegionView> together;
  together.reserve(first_region_[chunk + 1] - first_region_[chunk]);
  for (std::size_t region = first_region_[chunk]; region < first_region_[chunk + 1]; ++region) {
    const std::uint32_t share = share_of_[region];
    LAYERCAST_CHECK(next[share] < views[share].size());
    together.push_back(views[share][next[share]++]);
  }
  return together;
}

}  // namespace layercast
