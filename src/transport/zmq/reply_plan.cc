#include "src/transport/zmq/reply_plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/transport/zmq/messages.h"

namespace layercast::zmq_channel {
namespace {
// Shorter runs are cheaper to copy together than to send one by one.
constexpr std::size_t kInPlaceFrom = std::size_t{64} << 10;
}  // namespace

ReplyPlan::ReplyPlan(std::vector<RegionView> views) : views_(std::move(views)) {
  for (RegionView& view : views_) {
    if (view.stride == view.row_bytes) view = {view.base, view.num_bytes(), 1, view.num_bytes()};
  }
  SkipEmpty();
}

ReplyPlan::Next ReplyPlan::Take() {
  started_ = true;
  const std::span<const std::byte> run = Run();
  if (run.size() < kInPlaceFrom) return {{}, offset_};
  const Next next{run.first(std::min(run.size(), kPieceBytes)), offset_};
  Advance(next.in_place.size());
  return next;
}

std::size_t ReplyPlan::Gather(std::byte* destination) {
  std::size_t size = 0;
  for (std::span<const std::byte> run = Run(); !run.empty() && run.size() < kInPlaceFrom; run = Run()) {
    const std::size_t bytes = std::min(run.size(), kPieceBytes - size);
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

}  // namespace layercast::zmq_channel
