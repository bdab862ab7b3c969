#include "src/transport/reply_plan.h"

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

std::span<const std::byte> ReplyPlan::TakeRun(std::size_t most) {
  started_ = true;
  const std::span<const std::byte> run = Run().first(std::min(Run().size(), most));
  if (!run.empty()) Advance(run.size());
  return run;
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

void ReplyPlan::Advance(std::size_t bytes) {
  offset_ += bytes;
  column_ += bytes;
  const RegionView& view = views_[view_];
  if (column_ < view.row_bytes) return;
  column_ = 0;
  if (++row_ < view.rows) return;
  row_ = 0;
  ++view_;
  SkipEmpty();
}

void ReplyPlan::SkipEmpty() {
  while (view_ < views_.size() && views_[view_].num_bytes() == 0) ++view_;
}

}  // namespace layercast
