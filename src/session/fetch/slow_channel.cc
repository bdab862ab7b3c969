#include "src/session/fetch/slow_channel.h"

#include <algorithm>
#include <cstdint>

#include "src/session/choose/channel_chooser.h"

namespace layercast {
namespace {

constexpr std::uint64_t kWorthJudging = 16U << 20;  // bytes: as many as the probe moves
constexpr double kFarUnder = 0.25;
constexpr std::uint64_t kSmallRegion = 4096;  // bytes: a page; in smaller runs the cost of each run shows

std::string LikelyCause(const FetchStats& stats, PublishMode mode) {
  if (stats.regions > 0 && stats.bytes / stats.regions < kSmallRegion) {
    return "its pieces are small, " + std::to_string(stats.bytes / stats.regions) +
           " bytes on average: fewer ranks, or a publisher that holds the tensors as the engine cuts them, would help";
  }
  if (stats.verify_seconds > stats.receive_seconds) {
    return "most of the time went into digests: this host's processors or its memory are busy with something else";
  }
  if (mode == PublishMode::kStream) {
    return "most of the time was spent waiting for the publisher: a stream is as fast as its trainer yields tensors, "
           "and "
           "as they are copied and digested then";
  }
  return "most of the time was spent waiting for the publisher: its host or the network between are busy with "
         "something else, perhaps with other engines";
}

}  // namespace

std::optional<std::string> SlowChannelWarning(const FetchStats& stats, PublishMode mode) {
  // A relay has chunks only when it has got them itself, so the rate says nothing about the channel.
  if (std::ranges::any_of(stats.publishers, [](const auto& share) { return share.relayed_bytes > 0; }))
    return std::nullopt;
  if (stats.delta && stats.delta->taken) return std::nullopt;  // most of the time goes into the base
  const double probed = stats.channel.probed_gb_per_s;
  if (stats.bytes < kWorthJudging || stats.gb_per_s() >= probed * kFarUnder) return std::nullopt;
  return "channel " + stats.channel.name + " moved " + RateText(stats.gb_per_s()) + ", and " + RateText(probed) +
         " when it was chosen; " + LikelyCause(stats, mode);
}

}  // namespace layercast
