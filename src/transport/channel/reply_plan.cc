#include "src/transport/channel/reply_plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace layercast {

ReplyPlan::ReplyPlan(std::vector<RegionView> views) : views_(std::move(views)) {
  for (RegionView& view : views_) {
    if (view.stride == view.row_bytes) view = {view.base, view.num_bytes(), 1, view.num_bytes()};
  }
  SkipEmpty();
}

ReplyPlan::Next ReplyPlan::Take(std::size_t most) {
  started_ = true;
  const std::span<const std::byte> run = Run();
  if (run.size() < kInPlaceFrom) return {{}, offset_};
  const Next next{run.first(std::min(run.size(), most)), offset_};
  Advance(next.in_place.size());
  return next;
}

RegionView ReplyPlan::TakeView(std::size_t most) {
  started_ = true;
  const std::span<const std::byte> run = Run();
  if (run.empty()) return {};
  const RegionView& view = views_[view_];
  RegionView taken = AsView(run.first(std::min(run.size(), most)));
  if (column_ == 0 && taken.row_bytes == view.row_bytes) {
    taken = {view.row(row_), view.row_bytes, std::min(view.rows - row_, most / view.row_bytes), view.stride};
  }
  Advance(taken.num_bytes());
  return taken;
}

std::size_t ReplyPlan::Gather(std::byte* destination, std::size_t most) {
  std::size_t size = 0;
  for (std::span<const std::byte> run = Run(); !run.empty() && run.size() < kInPlaceFrom; run = Run()) {
    const std::size_t bytes = std::min(run.size(), most - size);
    if (bytes == 0) break;
    std::memcpy(destination + size, run.data(), bytes);
    size += bytes;
    Advance(bytes);
  }
  return size;
}

std::span<const std::byte> ReplyPlan::Run() const {
  if (view_ == views_.size()) return {};
  const RegionView& view = views_[view_];
  return {view.row(row_) + column_, view.row_bytes - column_};
}

// Moves the cursor within the current row or to its end, or by whole rows of the current view.
void ReplyPlan::Advance(std::size_t bytes) {
  offset_ += bytes;
  column_ += bytes;
  const RegionView& view = views_[view_];
  row_ += column_ / view.row_bytes;
  column_ %= view.row_bytes;
  if (row_ < view.rows) return;
  row_ = 0;
  ++view_;
  SkipEmpty();
}

void ReplyPlan::SkipEmpty() {
  while (view_ < views_.size() && views_[view_].num_bytes() == 0) ++view_;
}

}  // namespace layercast
