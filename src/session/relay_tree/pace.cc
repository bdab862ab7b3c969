#include "src/session/relay_tree/pace.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace layercast {
namespace {

constexpr double kMostly = 0.75;
constexpr double kHardly = 0.25;
// Far less than the publisher could send. Some less is normal: each relay feeds two, and others share the links.
constexpr double kFarLessThanReach = 1.0 / 8;
constexpr double kFarLessThanOthers = 1.0 / 4;

std::string Percent(double share) { return std::to_string(static_cast<int>(share * 100)) + " %"; }

std::string MegabytesPerSecond(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g MB/s", rate * 1e-6);
  return text;
}

double Median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

}  // namespace

std::chrono::microseconds Pace::Note(const wire::Progress& progress, TimePoint now) {
  const bool sense =
      progress.elapsed_us > last_.elapsed_us && progress.waited_us >= last_.waited_us && progress.bytes >= last_.bytes;
  if (!sense) return {};
  const std::uint64_t period_us = progress.elapsed_us - last_.elapsed_us;
  const auto period = static_cast<double>(period_us);
  waiting_ = std::min(1.0, static_cast<double>(progress.waited_us - last_.waited_us) / period);
  rate_ = static_cast<double>(progress.bytes - last_.bytes) / period * 1e6;
  last_ = progress;
  heard_ = now;
  // A clock may have leapt, so no more counts than a period may be expected to last.
  return std::min(std::chrono::microseconds(static_cast<std::int64_t>(std::min<std::uint64_t>(period_us, 1U << 30))),
                  std::chrono::microseconds(2 * kPeriod));
}

bool Pace::starves() const { return waiting_ >= kMostly && rate_ == 0; }

double Pace::mean_rate() const {
  return last_.elapsed_us == 0 ? 0 : static_cast<double>(last_.bytes) / static_cast<double>(last_.elapsed_us) * 1e6;
}

std::optional<std::string> WhyHeldUp(const Pace& follower, const RelayPace& relay, std::span<const double> others,
                                     Pace::TimePoint now) {
  if (follower.waiting() < kMostly) return std::nullopt;
  const std::string waits = "of the last while " + Percent(follower.waiting()) + " went by waiting for it, at " +
                            MegabytesPerSecond(follower.rate());
  if (!relay.finished && (relay.pace.IsSilent(now) || relay.pace.waiting() < kHardly)) {
    return waits + "; it has chunks itself, and is busy with them";
  }
  const double usual = others.empty() ? relay.pace.mean_rate() : Median(others);
  const bool usual_known = usual > 0 || !others.empty();
  const bool far_less_than_usual = !usual_known || follower.rate() < kFarLessThanOthers * usual;
  if (!far_less_than_usual || follower.rate() >= kFarLessThanReach * follower.within_reach()) return std::nullopt;
  const std::string measure = (others.empty() ? "it got " : "others get ") + MegabytesPerSecond(usual) + ", ";
  return waits + "; " + (usual_known ? measure : "") + "the publisher's channel did " +
         MegabytesPerSecond(follower.within_reach());
}

}  // namespace layercast
