#include "engine_side/server/reload/passed_over.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <ranges>
#include <vector>

#include "src/base/deadline.h"
#include "src/base/log.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kOfferedAnswer{2'000};
constexpr std::ptrdiff_t kMostListed = 16;

}  // namespace

PassedOver::PassedOver(KeptPeers& kept, const std::string& publishers, const Keys& keys,
                       const std::optional<Version>& before, const Version& staged)
    : before_(before), whole_(SplitEndpoints(publishers).size() == 1) {
  if (!before || before->lineage != staged.lineage || *before == staged) return;
  const wire::OfferedSince since{before->lineage, before->step, whole_ ? before->digest : Digest()};
  question_.emplace(kept, SplitEndpoints(publishers).front(), keys, since);
}

Json PassedOver::List(const Version& now, Deadline deadline) {
  if (!before_ || before_->lineage != now.lineage) return nullptr;
  if (*before_ == now || !question_) return {{"count", 0}, {"complete", true}, {"versions", Json::array()}};
  wire::OfferedVersions offered;
  try {
    offered = question_->Answer(deadline.AtMost(kOfferedAnswer));
  } catch (const std::exception& error) {
    log::warn("which versions were passed over is not known: {}", error.what());
    return nullptr;
  }
  // An engine that went back has passed nothing over: what is served now was offered before.
  const auto is_now = [&](const wire::OfferedName& name) {
    return name.step == now.step && (!whole_ || name.digest == now.digest);
  };
  const auto reversed = offered.since | std::views::reverse;
  const auto found = std::ranges::find_if(reversed, is_now);
  const auto end = found == reversed.end() ? offered.since.begin() : found.base() - 1;
  Json passed = {{"count", end - offered.since.begin()}, {"complete", offered.known}, {"versions", Json::array()}};
  const auto first = end - std::min(end - offered.since.begin(), kMostListed);
  for (auto at = first; at != end; ++at) {
    passed["versions"].push_back({{"version", VersionToJson(Version{at->lineage, at->step, at->digest})},
                                  {"run", at->run.empty() ? Json() : Json(at->run)}});
  }
  return passed;
}

}  // namespace layercast
