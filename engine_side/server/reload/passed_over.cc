#include "engine_side/server/reload/passed_over.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <ranges>
#include <vector>

#include "src/base/deadline.h"
#include "src/base/log.h"
#include "src/net/zmq/endpoint.h"
#include "src/session/ask/publisher_status.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kOfferedAnswer{2'000};
constexpr std::ptrdiff_t kMostListed = 16;

}  // namespace

Json PassedOver(const std::string& publishers, const Keys& keys, const std::optional<Version>& before,
                const Version& now) {
  if (!before || before->lineage != now.lineage) return nullptr;
  if (*before == now) return {{"count", 0}, {"complete", true}, {"versions", Json::array()}};
  const std::vector<std::string> endpoints = SplitEndpoints(publishers);
  // The digests of a sharded trainer's publishers are of their parts.
  const bool whole = endpoints.size() == 1;
  const Digest any;
  wire::OfferedVersions offered;
  try {
    const wire::OfferedSince since{before->lineage, before->step, whole ? before->digest : any};
    offered = AskOffered(endpoints.front(), keys, since, Deadline::After(kOfferedAnswer));
  } catch (const std::exception& error) {
    log::warn("which versions were passed over is not known: {}", error.what());
    return nullptr;
  }
  // An engine that went back has passed nothing over: what is served now was offered before.
  const auto is_now = [&](const wire::OfferedName& name) {
    return name.step == now.step && (!whole || name.digest == now.digest);
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
