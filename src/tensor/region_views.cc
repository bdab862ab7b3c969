#include "src/tensor/region_views.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace layercast {
namespace {

bool IsOneRun(const RegionView& view) { return view.rows == 1 || view.stride == view.row_bytes; }

// Splits a view into its first `bytes`, or somewhat fewer, and the rest. Rows that lie apart are not cut.
std::pair<RegionView, RegionView> SplitAt(const RegionView& view, std::size_t bytes) {
  const std::size_t all = view.num_bytes();
  if (IsOneRun(view)) {
    const std::size_t first = std::min(bytes, all);
    return {AsView({view.base, first}), AsView({view.base + first, all - first})};
  }
  RegionView first = view;
  RegionView rest = view;
  first.rows = std::clamp<std::size_t>(bytes / view.row_bytes, 1, view.rows);
  rest.base = view.row(first.rows);
  rest.rows = view.rows - first.rows;
  return {first, rest};
}

}  // namespace

std::size_t NumBytes(std::span<const RegionView> views) {
  std::size_t bytes = 0;
  for (const RegionView& view : views) bytes += view.num_bytes();
  return bytes;
}

std::vector<RegionView> PackAll(std::span<const RegionView> views, std::byte* destination) {
  std::vector<RegionView> copies;
  copies.reserve(views.size());
  for (const RegionView& view : views) {
    Pack(view, destination);
    copies.push_back(PackedAt(destination, view.row_bytes, view.rows));
    destination += view.num_bytes();
  }
  return copies;
}

std::vector<ViewShare> SharesOf(std::span<const RegionView> views, std::size_t bytes) {
  std::vector<ViewShare> shares;
  std::size_t begin = 0;
  std::size_t room = 0;  // bytes that still fit the last share
  for (RegionView rest : views) {
    while (rest.num_bytes() != 0) {
      if (room == 0) {
        shares.push_back({.begin = begin, .views = {}});
        room = bytes;
      }
      const auto [first, behind] = SplitAt(rest, room);
      shares.back().views.push_back(first);
      begin += first.num_bytes();
      room -= std::min(room, first.num_bytes());
      rest = behind;
    }
  }
  return shares;
}

PackedBytes::PackedBytes(std::span<const RegionView> views, std::size_t first) : views_(views) {
  for (; !views_.empty() && first >= views_.front().num_bytes(); views_ = views_.subspan(1)) {
    first -= views_.front().num_bytes();
  }
  if (views_.empty() || IsOneRun(views_.front())) {
    at_ = first;
  } else {
    row_ = first / views_.front().row_bytes;
    at_ = first % views_.front().row_bytes;
  }
}

std::span<const std::byte> PackedBytes::Run() const {
  if (views_.empty()) return {};
  const RegionView& view = views_.front();
  if (IsOneRun(view)) return std::span(view.base, view.num_bytes()).subspan(at_);
  return std::span(view.row(row_), view.row_bytes).subspan(at_);
}

void PackedBytes::Skip(std::size_t bytes) {
  at_ += bytes;
  if (!Run().empty()) return;
  at_ = 0;
  if (!IsOneRun(views_.front()) && ++row_ < views_.front().rows) return;
  row_ = 0;
  do {
    views_ = views_.subspan(1);
  } while (!views_.empty() && views_.front().num_bytes() == 0);
}

std::size_t PackedBytes::Read(std::span<std::byte> to) {
  std::size_t done = 0;
  for (std::span<const std::byte> run = Run(); done < to.size() && !run.empty(); run = Run()) {
    const std::size_t count = std::min(run.size(), to.size() - done);
    std::memcpy(to.data() + done, run.data(), count);
    done += count;
    Skip(count);
  }
  return done;
}

}  // namespace layercast
