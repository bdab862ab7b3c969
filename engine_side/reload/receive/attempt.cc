#include "engine_side/reload/receive/attempt.h"

#include <algorithm>
#include <utility>

#include "engine_side/plan/kept_layers.h"
#include "engine_side/reload/work/wrong_values.h"
#include "layercast/error.h"
#include "layercast/model/module.h"
#include "src/base/check.h"
#include "src/tensor/manifest/manifest_entry.h"

namespace layercast {

ReloadAttempt::ReloadAttempt(const Environment& environment, std::shared_ptr<const PreparedLayout> prepared,
                             Manifest manifest, const Arrival& arrival)
    : environment_(environment),
      prepared_(std::move(prepared)),
      manifest_(std::move(manifest)),
      snapshot_(arrival.snapshot),
      pipeline_({.plan = prepared_->plan,
                 .manifest = manifest_,
                 .layout = prepared_->kernel,
                 .recipes = environment.recipes,
                 .sink = environment.sink,
                 .work = environment.work,
                 .pool = environment.pool,
                 .failpoints = environment.failpoints,
                 .buffer_limit = environment.buffer_limit},
                arrival.in_order && environment.direct ? std::span<const Piece>(schedule().pieces)
                                                       : std::span<const Piece>()),
      summaries_(manifest_.summaries()) {
  CheckAliases();  // as far as digests are known by now
  if (snapshot_) return;
  for (const auto& [number, place] : prepared_->part_places) {
    if (prepared_->plan.parts()[place.tensor].size() > 1) pipeline_.amax().Await(place.tensor);
  }
}

void ReloadAttempt::Take(const NamedTensor& named) {
  const std::int64_t found = manifest_.Find(named.name);
  if (found < 0) return TakeUndeclared(named);
  const auto tensor = static_cast<std::uint32_t>(found);
  CheckTakes(tensor, named);
  const TensorSummary summary = SummaryOf(named.name, named.tensor, environment_.pool);
  CheckWholeTensor(prepared_->plan, tensor, named, summary.amax);
  Summarize(tensor, summary);
  const auto asked = std::ranges::lower_bound(prepared_->amax_requests, tensor, {}, &AmaxRequest::tensor);
  if (asked != prepared_->amax_requests.end() && asked->tensor == tensor) {
    const TensorSpec read = AsRead(manifest_.entry(tensor).spec, *asked);
    pipeline_.amax().AddAxes(tensor, asked->kept, Box::Whole(read.shape),
                             AmaxOver(read, named.tensor.data, asked->kept, environment_.pool));
  }
  const auto bytes = static_cast<std::uint64_t>(named.tensor.num_bytes());
  for (const std::uint32_t index : prepared_->stream_regions[tensor]) {
    const Region& region = prepared_->stream.schedule.regions()[index];
    const RegionView view = ViewAt(named.tensor.data, bytes, region);
    bytes_ += view.num_bytes();
    pipeline_.Accept(prepared_->stream.pieces[index], view);
  }
}

// Takes a tensor that the manifest does not have. That is harmless if the tensor is one that models compute and do not
// load.
void ReloadAttempt::TakeUndeclared(const NamedTensor& named) const {
  const auto parts = environment_.model.ResolveSource({named.name, named.tensor.dtype, named.tensor.shape});
  if (std::ranges::none_of(parts, [](const auto& part) { return part.to.skip_rule.empty(); })) return;
  throw Error(ErrorCode::kInvalidArgument,
              "'" + named.name + "' is not among the tensors that this reload was begun with");
}

void ReloadAttempt::CheckTakes(std::uint32_t tensor, const NamedTensor& named) {
  const TensorSpec& spec = manifest_.entry(tensor).spec;
  if (named.tensor.dtype != spec.dtype || named.tensor.shape != spec.shape) {
    throw Error(ErrorCode::kInvalidArgument, "'" + spec.name + "' expected " + layercast::Describe(spec) + ", got " +
                                                 layercast::Describe(named.tensor.dtype, named.tensor.shape));
  }
  CheckReadable(spec.name, named.tensor);
  if (!loaded_.insert(named.name).second) {
    throw Error(ErrorCode::kInvalidArgument, "'" + named.name + "' came twice in one reload");
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
  loaded_.insert(manifest_.entry(tensor).spec.name);
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
  const PlannedSchedule& planned = schedule();
  const Chunk& wanted = planned.schedule.chunks()[chunk];
  LAYERCAST_CHECK(regions.size() == wanted.num_regions);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    bytes_ += regions[i].num_bytes();
    pipeline_.Accept(planned.pieces[wanted.first_region + i], regions[i]);
  }
}

std::uint64_t ReloadAttempt::layers_awaited() const {
  return static_cast<std::uint64_t>(
      std::ranges::count(prepared_->plan.layers(), false, [](const PlannedLayer& layer) { return layer.kept; }));
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
  report.bytes_total = schedule().schedule.total_bytes();
  report.layers = pipeline_.layers_done();
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
