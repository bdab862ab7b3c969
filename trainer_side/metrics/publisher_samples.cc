#include "trainer_side/metrics/publisher_samples.h"

#include <algorithm>
#include <map>
#include <string>

namespace layercast {
namespace {

// Those that engines may begin to take by their names, oldest first.
std::vector<wire::KeptVersion> Offered(const PublisherLook& look) {
  std::vector<wire::KeptVersion> offered = look.versions.versions;
  std::erase_if(offered, [](const wire::KeptVersion& version) { return version.evicted || version.shadowed; });
  return offered;
}

double SecondsSince(std::uint64_t then_ms, std::uint64_t now_ms) {
  return now_ms < then_ms ? 0 : static_cast<double>(now_ms - then_ms) * 1e-3;  // a clock may have gone back
}

void AddVersions(const PublisherLook& look, MetricSamples& samples) {
  const auto& versions = look.versions.versions;
  const auto count = [&](bool wire::KeptVersion::*is) {
    return static_cast<double>(std::ranges::count_if(versions, is));
  };
  const double evicted = count(&wire::KeptVersion::evicted);
  samples.Add("layercast_publisher_versions", {"kept"}, static_cast<double>(versions.size()) - evicted);
  samples.Add("layercast_publisher_versions", {"pinned"}, count(&wire::KeptVersion::pinned));
  samples.Add("layercast_publisher_versions", {"evicted"}, evicted);
  samples.Add("layercast_publisher_retained_bytes", static_cast<double>(look.versions.memory_bytes));
  std::map<std::string, std::uint64_t> newest;
  for (const wire::KeptVersion& version : Offered(look)) newest[version.lineage] = version.step;
  for (const auto& [lineage, step] : newest) {
    samples.Add("layercast_publisher_offered_step", {lineage}, static_cast<double>(step));
  }
  const double age = versions.empty() ? 0 : SecondsSince(versions.back().published_ms, look.now_ms);
  samples.Add("layercast_publisher_version_age_seconds", age);
}

// How far an engine is behind what is kept of a lineage, of which it has that step.
void AddBehind(const PublisherLook& look, const std::string& peer, const std::string& lineage, std::uint64_t step,
               MetricSamples& samples) {
  std::uint64_t newest = step;
  double seconds = 0;
  for (const wire::KeptVersion& version : Offered(look)) {
    if (version.lineage != lineage || version.step <= step) continue;
    newest = std::max(newest, version.step);
    seconds = std::max(seconds, SecondsSince(version.published_ms, look.now_ms));
  }
  samples.Add("layercast_publisher_peer_step", {peer, lineage}, static_cast<double>(step));
  samples.Add("layercast_publisher_peer_behind_steps", {peer, lineage}, static_cast<double>(newest - step));
  samples.Add("layercast_publisher_peer_behind_seconds", {peer, lineage}, seconds);
}

void AddTaker(const PublisherLook& look, const TakerCount& taker, MetricSamples& samples) {
  const std::string peer = std::to_string(taker.number);
  samples.Add("layercast_publisher_peer_info", {peer, taker.engine}, 1);
  samples.Add("layercast_publisher_taken_bytes_total", {peer}, static_cast<double>(taker.bytes));
  samples.Add("layercast_publisher_taken_bytes_per_second", {peer}, static_cast<double>(taker.bytes_per_second));
  samples.Add("layercast_publisher_syncs_total", {peer}, static_cast<double>(taker.syncs));
  for (const auto& [lineage, step] : taker.steps) AddBehind(look, peer, lineage, step, samples);
}

}  // namespace

MetricSamples PublisherSamples(const PublisherLook& look) {
  MetricSamples samples;
  samples.Expect("layercast_publisher_");
  samples.Add("layercast_publisher_published_total", static_cast<double>(look.published));
  AddVersions(look, samples);
  samples.Add("layercast_publisher_sessions", static_cast<double>(look.takers.sessions));
  for (const TakerCount& taker : look.takers.takers) AddTaker(look, taker, samples);
  samples.AddByCode("layercast_publisher_refusals_total", {}, look.takers.refusals);
  samples.Add("layercast_publisher_queued_orders", static_cast<double>(look.orders));
  return samples;
}

}  // namespace layercast
