#include "src/transport/ucx/one_sided/read_plan.h"

#include <algorithm>

namespace layercast::ucx_channel {

ReadPlan::ReadPlan(std::span<const Region> regions) {
  for (const Region& region : regions) {
    if (region.num_bytes() == 0) continue;
    regions_.push_back(Joined(region));
    tensors_.insert(region.tensor);
  }
}

Region ReadPlan::Joined(Region region) {
  if (region.stride != region.row_bytes) return region;
  const std::uint64_t bytes = region.num_bytes();
  return {region.tensor, region.offset, bytes, 1, bytes};
}

ReadPlan::Run ReadPlan::Take(std::uint64_t most) {
  const Region& region = regions_[region_];
  Run run{region.tensor, region.offset + row_ * region.stride + column_, to_,
          std::min(most, region.row_bytes - column_)};
  to_ += run.bytes;
  column_ += run.bytes;
  if (column_ == region.row_bytes) NextRow();
  return run;
}

void ReadPlan::NextRow() {
  column_ = 0;
  if (++row_ < regions_[region_].rows) return;
  row_ = 0;
  ++region_;
}

}  // namespace layercast::ucx_channel
