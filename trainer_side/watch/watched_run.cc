#include "trainer_side/watch/watched_run.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

// The checkpoint's weights, whose walk fails at its end if the files have changed since they were found whole: so a
// trainer that writes over them cannot have a version of old and new bytes published.
Weights Unchanged(const FoundCheckpoint& found) {
  Weights weights = Weights::FromCheckpoint(found.path);
  weights.walk = [walk = std::move(weights.walk), found](std::span<const std::string> order) {
    return MakeWeightsIterator([tensors = std::shared_ptr(walk(order)), found] {
      std::optional<NamedTensor> tensor = tensors->Next();
      if (!tensor && FingerprintOf(found.path) != found.fingerprint) {
        throw Error(ErrorCode::kCorrupt, Quote(found.path) + " was written to while it was read");
      }
      return tensor;
    });
  };
  return weights;
}

}  // namespace

WatchedRun::WatchedRun(Publisher& publisher, const Options& options,
                       std::function<FolderWatch::Clock::time_point()> now)
    : publisher_(publisher),
      options_(options),
      watch_(options.parent, options.quiet, std::move(now)),
      run_(options.run) {
  for (const KeptVersion& kept : publisher.Versions().versions) {  // of its store, where it was started anew
    if (kept.version.lineage == options.lineage && kept.run.starts_with(ResumedName())) run_ = kept.run;
  }
}

std::string WatchedRun::ResumedName() const { return (options_.run.empty() ? "" : options_.run + "-") + "resumed-"; }

void WatchedRun::Look() {
  std::vector<FoundCheckpoint> found = watch_.Look();
  if (!last_step_ && found.size() > options_.retained_versions) {
    found.erase(found.begin(), found.end() - static_cast<std::ptrdiff_t>(options_.retained_versions));
  }
  for (const FoundCheckpoint& each : found) {
    try {
      Publish(each);
    } catch (const Error& error) {
      log::warn("{} is not published: {}", Quote(each.path), error.what());
    }
  }
}

void WatchedRun::Publish(const FoundCheckpoint& found) {
  if (last_step_ && found.step <= *last_step_ && !ResumesRun(found)) {
    log::warn("{} is not published: step {} is not after {}", Quote(found.path), found.step, *last_step_);
    return;
  }
  const PublishedVersion published =
      publisher_.Publish({.lineage = options_.lineage,
                          .step = found.step,
                          .run = run_.empty() ? std::nullopt : std::optional(run_),
                          .noise = options_.noise ? options_.noise(found.step) : std::nullopt},
                         Unchanged(found));
  last_step_ = found.step;
  log::info("published {} from {}", published.version().ToString(), Quote(found.path));
}

// A checkpoint that is written anew, of a step that was there before, comes from a run that was resumed.
bool WatchedRun::ResumesRun(const FoundCheckpoint& found) {
  if (!found.again) return false;
  const std::vector<KeptVersion> kept = publisher_.Versions().versions;
  do {
    run_ = ResumedName() + std::to_string(++resumed_);
  } while (std::ranges::find(kept, run_, &KeptVersion::run) != kept.end());
  log::info("{} was written anew: it begins run {}", Quote(found.path), run_);
  return true;
}

}  // namespace layercast
