#include "engine_side/reload/receive/attempt.h"

#include <algorithm>
#include <utility>

#include "engine_side/plan/kept_layers.h"
#include "layercast/error.h"
#include "layercast/model/module.h"
#include "src/base/check.h"
#include "src/base/stop_check.h"

namespace layercast {

ReloadAttempt::ReloadAttempt(Environment environment, std::shared_ptr<const PreparedLayout> prepared, Manifest manifest,
                             bool snapshot, bool direct)
    : environment_(std::move(environment)),
      prepared_(std::move(prepared)),
      manifest_(std::move(manifest)),
      snapshot_(snapshot),
      pipeline_({.plan = prepared_->plan,
                 .manifest = manifest_,
                 .layout = prepared_->kernel,
                 .recipes = environment_.recipes,
                 .sink = environment_.sink,
                 .work = environment_.work,
                 .pool = environment_.pool,
                 .failpoints = environment_.failpoints,
                 .buffer_limit = environment_.buffer_limit,
                 .noise = environment_.noise,
                 .trace = environment_.trace},
                direct ? std::span<const Piece>(schedule().pieces) : std::span<const Piece>()),
      summaries_(manifest_.summaries()) {
  CheckAliases();  // as far as digests are known by now
  if (snapshot_) return;
  for (const auto& [number, place] : prepared_->part_places) {
    if (prepared_->plan.parts()[place.tensor].size() > 1) pipeline_.amax().Await(place.tensor);
  }
}

void ReloadAttempt::OnTensor(std::uint32_t tensor, float amax, const Digest& digest) {
  if (prepared_->plan.parts().empty()) return Summarize(tensor, {digest, amax});
  NotePart(tensor, {digest, amax});
}

// A tensor's summary is known once those of all its parts are. If magnitudes of this part were asked for, they come
// after this call and before the part's bytes.
void ReloadAttempt::NotePart(std::uint32_t number, const TensorSummary& summary) {
  const auto place = prepared_->part_places.find(number);
  if (place == prepared_->part_places.end()) return;  // a part without elements
  const auto [tensor, part] = place->second;
  const std::vector<HeldPart>& parts = prepared_->plan.parts()[tensor];
  std::vector<TensorSummary>& summaries = of_parts_[tensor];
  summaries.resize(parts.size());
  summaries[part] = summary;
  const TensorSummary together = Together(parts, summaries);
  if (!together.digest) return;
  Summarize(tensor, together);
  if (FindRequest(number) == nullptr) pipeline_.MagnitudesCame(tensor);
}

void ReloadAttempt::Summarize(std::uint32_t tensor, const TensorSummary& summary) {
  summaries_[tensor] = summary;
  pipeline_.amax().Set(tensor, summary.amax);
}

// The session has checked that these magnitudes were asked for, and how many values there are.
void ReloadAttempt::OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) {
  const PreparedLayout::PartRequest* const asked = FindRequest(tensor);
  LAYERCAST_CHECK(asked != nullptr);
  pipeline_.amax().AddAxes(asked->tensor, asked->request.kept, asked->box, amax);
  pipeline_.MagnitudesCame(asked->tensor);
}

const PreparedLayout::PartRequest* ReloadAttempt::FindRequest(std::uint32_t number) const {
  const auto found = std::ranges::lower_bound(prepared_->part_requests, number, {},
                                              [](const auto& part) { return part.request.tensor; });
  const bool asked = found != prepared_->part_requests.end() && found->request.tensor == number;
  return asked ? &*found : nullptr;
}

void ReloadAttempt::OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) {
  ThrowIfStopped(environment_.stop, "taking chunk " + std::to_string(chunk));
  const PlannedSchedule& planned = schedule();
  const Chunk& wanted = planned.schedule.chunks()[chunk];
  LAYERCAST_CHECK(regions.size() == wanted.num_regions);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    bytes_ += regions[i].num_bytes();
    pipeline_.Accept(planned.pieces[wanted.first_region + i], regions[i]);
  }
  environment_.say_came();
}

std::uint64_t ReloadAttempt::layers_awaited() const {
  return OfModel(static_cast<std::uint64_t>(
      std::ranges::count(prepared_->plan.layers(), false, [](const PlannedLayer& layer) { return layer.kept; })));
}

void ReloadAttempt::Finish() {
  pipeline_.Finish();
  CheckAliases();
  environment_.failpoints.Hit("verify");
}

// Tied tensors are loaded once, under their owner's name. If another one of them comes with other bytes, the model is
// wrong.
void ReloadAttempt::CheckAliases() const {
  for (const AliasedTensor& alias : prepared_->plan.aliases()) {
    const Digest& one = summaries_[alias.tensor].digest;
    const Digest& owner = summaries_[alias.owner].digest;
    if (!one || !owner || one == owner) continue;
    if (!Comparable(alias.tensor, alias.owner)) continue;
    throw Error(ErrorCode::kCorrupt, "'" + manifest_.entry(alias.tensor).spec.name + "' is tied to '" +
                                         manifest_.entry(alias.owner).spec.name +
                                         "', but holds other bytes: digest expected " + owner.ToHex() + ", got " +
                                         one.ToHex());
  }
}

// Whether the digests of two tensors can be compared. The digest of a tensor that is held in parts depends on where it
// is cut, because it is made of the parts' digests.
bool ReloadAttempt::Comparable(std::uint32_t tensor, std::uint32_t other) const {
  return std::ranges::equal(prepared_->plan.CutsOf(tensor), prepared_->plan.CutsOf(other), {}, &HeldPart::box,
                            &HeldPart::box);
}

Manifest ReloadAttempt::FinalManifest() const {
  return {manifest_.version().lineage, manifest_.version().step, manifest_.layout(), summaries_};
}

void ReloadAttempt::Describe(ReloadReport& report) const {
  const LoadPlan& plan = prepared_->plan;
  report.bytes = bytes_;
  report.bytes_total = bytes_awaited();
  report.layers = layers();
  report.layers_kept = pipeline_.layers_kept();
  report.kept = Condensed(KeptLayers(plan));
  report.peak_buffered_bytes = pipeline_.buffer().peak_bytes();
  report.out_of_order = pipeline_.buffer().episodes();
  report.cast.clear();
  for (const std::uint32_t tensor : plan.cast_tensors()) {
    const auto placements = plan.PlacementsOf(tensor);
    if (placements.empty()) continue;  // only for other ranks, such as a vocabulary that ends before this rank's rows
    report.cast.push_back({manifest_.entry(tensor).spec.name, manifest_.entry(tensor).spec.dtype,
                           plan.parameters()[plan.placements()[placements.front()].parameter].spec.dtype});
  }
  report.skipped.clear();
  for (const SkippedTensor& skipped : plan.skipped()) {
    report.skipped.push_back({manifest_.entry(skipped.tensor).spec.name, skipped.rule});
  }
  for (const AliasedTensor& alias : plan.aliases()) {
    report.skipped.push_back({manifest_.entry(alias.tensor).spec.name,
                              "tied to " + manifest_.entry(alias.owner).spec.name +
                                  (Comparable(alias.tensor, alias.owner) ? "" : ", not compared: cut in other parts")});
  }
  report.unused_rules = plan.unused_rules();
  report.elsewhere = plan.elsewhere().size();
  for (const auto& [stage, milliseconds] : pipeline_.milliseconds()) report.stage_ms[stage] = milliseconds;
}

}  // namespace layercast
