#include "engine_side/server/reload/staleness.h"

#include "src/base/run_at.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

Error Stale(const std::string& why) { return {ErrorCode::kFailedPrecondition, "max_staleness: " + why}; }

std::string OfRun(const std::string& run) { return run.empty() ? "" : " of run " + Quote(run); }

// Why steps do not count from the version to the newest; empty: they do.
std::string NotComparable(const Version& served, const HeardOffer& heard) {
  const wire::OfferedName& newest = heard.offer.newest.front();
  if (newest.lineage != served.lineage) return "a version of another lineage";
  const bool asked = heard.asked.step == served.step && heard.asked.digest == served.digest;
  if (asked && heard.offer.known) {
    return heard.offer.shadowed ? "a version of a run that another has followed" : "";
  }
  if (served.step > newest.step) return "a later step, which is of no run that this publisher has";
  return "";
}

}  // namespace

std::optional<StalenessBound> StalenessBoundFrom(const Json& params, const std::optional<StalenessBound>& of_engine) {
  if (!params.contains("max_staleness") || params["max_staleness"].is_null()) return of_engine;
  const Json& asked = params["max_staleness"];
  if (!asked.at("steps").is_number_integer() || asked["steps"] < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "max_staleness: steps: expected a number from 0 on, got " + asked["steps"].dump());
  }
  const StalenessBound otherwise = of_engine.value_or(StalenessBound());
  return StalenessBound{.steps = asked["steps"].get<std::uint64_t>(),
                        .heard_within = MillisecondsFrom(asked, "heard_within_ms", otherwise.heard_within)};
}

std::optional<Error> TooStale(const StalenessBound& bound, Deadline::Clock::time_point came, const Version& served,
                              const std::string& publisher, const std::optional<HeardOffer>& heard,
                              const std::string& silence) {
  const std::string serves = "this engine serves " + served.ToString();
  const auto age = heard ? came - heard->at : Deadline::Clock::duration::max();
  if (age > bound.heard_within) {
    const std::string ago =
        heard ? std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(age).count()) + " ms ago"
              : "never";
    return Error(ErrorCode::kUnavailable, "max_staleness: " + serves + ", and what is newest is not known: publisher " +
                                              publisher + " was heard " + ago + ", expected within " +
                                              std::to_string(bound.heard_within.count()) + " ms" +
                                              (silence.empty() ? "" : " (" + silence + ")"));
  }
  if (heard->offer.newest.empty()) return std::nullopt;  // it offers nothing that could be newer
  const wire::OfferedName& newest = heard->offer.newest.front();
  const std::string offers = "publisher " + publisher + " offers " +
                             Version{newest.lineage, newest.step, newest.digest}.ToString() + OfRun(newest.run);
  if (const std::string why = NotComparable(served, *heard); !why.empty()) {
    return Stale(serves + ", " + why + ": " + offers);
  }
  const std::uint64_t behind = newest.step > served.step ? newest.step - served.step : 0;
  if (behind <= bound.steps) return std::nullopt;
  return Stale(serves + ", " + std::to_string(behind) + " steps behind: " + offers + ", expected at most " +
               std::to_string(bound.steps) + " steps");
}

}  // namespace layercast
