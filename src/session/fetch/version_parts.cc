#include "src/session/fetch/version_parts.h"

#include "layercast/error.h"
#include "src/base/run_at.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

std::string PartOf(const PublishedPart& part) {
  return "publisher " + part.endpoint + " has part " + std::to_string(part.manifest.part().rank) + " of " +
         std::to_string(part.manifest.part().ranks) + " of " + RunAt(part.manifest.version());
}

void CheckSameVersion(const PublishedPart& first, const PublishedPart& other) {
  const Version& a = first.manifest.version();
  const Version& b = other.manifest.version();
  const bool same = a.lineage == b.lineage && a.step == b.step;
  if (same && first.manifest.part().ranks == other.manifest.part().ranks) return;
  throw Error(ErrorCode::kFailedPrecondition,
              PartOf(first) + ", and " + PartOf(other) + ": expected parts of one version");
}

std::string RunOf(const PublishedPart& part) {
  return part.run.empty() ? " of a run without a name" : " of run " + Quote(part.run);
}

void CheckSameRun(const PublishedPart& first, const PublishedPart& other) {
  if (first.run == other.run) return;
  throw Error(ErrorCode::kFailedPrecondition, PartOf(first) + RunOf(first) + ", and " + PartOf(other) + RunOf(other) +
                                                  ": expected parts that one run of a trainer has published");
}

}  // namespace

std::vector<std::size_t> ByRank(std::span<const PublishedPart> parts) {
  const PublishedPart& first = parts.front();
  const auto ranks = static_cast<std::size_t>(first.manifest.part().ranks);
  constexpr auto kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> by_rank(ranks, kNone);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    CheckSameVersion(first, parts[i]);
    CheckSameRun(first, parts[i]);
    std::size_t& place = by_rank[static_cast<std::size_t>(parts[i].manifest.part().rank)];
    if (place != kNone) {
      throw Error(ErrorCode::kInvalidArgument,
                  PartOf(parts[place]) + ", and so has publisher " + parts[i].endpoint + ": expected each part once");
    }
    place = i;
  }
  std::string missing;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (by_rank[rank] == kNone) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (missing.empty()) return by_rank;
  throw Error(ErrorCode::kInvalidArgument, PartOf(first) + ": expected publishers of all of them, got " +
                                               std::to_string(parts.size()) + " without ranks " + missing);
}

}  // namespace layercast
