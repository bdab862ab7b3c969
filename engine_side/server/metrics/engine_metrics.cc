#include "engine_side/server/metrics/engine_metrics.h"

#include <algorithm>

#include "layercast/report.h"
#include "src/transport/all/channel_names.h"

namespace layercast {
namespace {

constexpr const char* kStates[] = {"loading", "serving", "receiving", "staged", "committing", "torn", "asleep"};
// Ways in that are no data channels. What ranks took over several channels counts as "several".
constexpr const char* kOtherWays[] = {"path", "iterator", "dummy", "previous", "several"};

std::vector<std::string> WaysIn() {
  std::vector<std::string> ways(std::begin(kOtherWays), std::end(kOtherWays));
  for (const ChannelName& channel : ChannelNames()) ways.emplace_back(channel.name);
  return ways;
}

// One of WaysIn.
std::string WayIn(const Json& name) {
  const std::vector<std::string> ways = WaysIn();
  const auto found = std::ranges::find(ways, name.get<std::string>());
  return found == ways.end() ? "several" : *found;
}

void AddState(const Json& status, MetricSamples& samples) {
  for (const char* state : kStates) samples.Add("layercast_engine_state", {state}, status.at("state") == state ? 1 : 0);
  const Json& version = status.at("version");
  if (version.is_null()) return;
  samples.Add("layercast_engine_served_step", {version.at("lineage").get<std::string>()},
              version.at("step").get<double>());
}

void AddWork(const EngineLook& look, MetricSamples& samples) {
  samples.Add("layercast_engine_adapter_bytes", {"slots"}, look.status.at("adapter_bytes").get<double>());
  samples.Add("layercast_engine_adapter_bytes", {"host"}, look.status.at("host_adapter_bytes").get<double>());
  samples.AddByCode("layercast_engine_refusals_total", {}, look.refusals);
  samples.Add("layercast_engine_calls_waiting", static_cast<double>(look.calls_waiting));
  samples.Add("layercast_engine_sequences", {"running"}, static_cast<double>(look.generator.running));
  samples.Add("layercast_engine_sequences", {"waiting"}, static_cast<double>(look.generator.waiting));
  samples.Add("layercast_engine_pause_seconds", {}, look.generator.pauses);
  samples.Add("layercast_engine_rank_restarts_total", static_cast<double>(look.restarts));
}

void AddRelays(const std::vector<Json>& relays, MetricSamples& samples) {
  samples.Expect("layercast_relay_");
  for (std::size_t rank = 0; rank < relays.size(); ++rank) {
    if (relays[rank].is_null()) continue;
    const std::string name = std::to_string(rank);
    samples.Add("layercast_relay_sessions", {name}, relays[rank].at("sessions").get<double>());
    samples.Add("layercast_relay_served_bytes_total", {name}, relays[rank].at("bytes").get<double>());
    std::map<ErrorCode, std::uint64_t> refusals;
    for (const auto& [code, count] : relays[rank].at("refusals").items()) refusals[ErrorCodeNamed(code)] = count;
    samples.AddByCode("layercast_relay_refusals_total", {name}, refusals);
  }
}

}  // namespace

EngineMetrics::EngineMetrics(const MetricsOptions& options, std::function<EngineLook()> look)
    : look_(std::move(look)), endpoint_(options.bind, options.open, [this] { return Samples(); }) {}

void EngineMetrics::Synced(const Json& outcome) {
  const Json& report = outcome.at("report");
  const std::lock_guard lock(mutex_);
  if (report.is_object()) NoteBytes(report);
  if (!outcome.at("ok").get<bool>()) {
    ++failures_[ErrorFromJson(outcome.at("error")).code()];
    return;
  }
  ++committed_;
  committed_at_ = std::chrono::steady_clock::now();
  NoteStages(report);
}

void EngineMetrics::NoteBytes(const Json& report) {
  const Json& channel = report.at("channel");
  const Json& publishers = report.at("publishers");
  const std::string way = WayIn(channel.at("name"));
  if (publishers.empty()) bytes_[{way, "0"}] += report.at("bytes").get<std::uint64_t>();
  for (std::size_t peer = 0; peer < publishers.size(); ++peer) {
    const Json& share = publishers[peer];
    bytes_[{WayIn(share.at("channel")), std::to_string(peer)}] += share.at("bytes").get<std::uint64_t>();
    relayed_bytes_ += share.at("relayed_bytes").get<std::uint64_t>();
  }
  rates_[way] = channel.at("gb_per_s").get<double>() * 1e9;
  out_of_order_ += report.at("out_of_order").size();
  staged_bytes_ = report.at("staged_bytes").get<std::uint64_t>();
  peak_buffered_bytes_ = report.at("peak_buffered_bytes").get<std::uint64_t>();
}

void EngineMetrics::NoteStages(const Json& report) {
  syncs_.Add(report.at("total_ms").get<double>() * 1e-3);
  for (const auto& [stage, ms] : report.at("stage_ms").items()) stages_[stage].Add(ms.get<double>() * 1e-3);
}

MetricSamples EngineMetrics::Samples() {
  const EngineLook look = look_();
  MetricSamples samples;
  samples.Expect("layercast_engine_");
  AddState(look.status, samples);
  AddWork(look, samples);
  if (!look.relays.empty()) AddRelays(look.relays, samples);
  const std::lock_guard lock(mutex_);
  AddSyncs(samples);
  return samples;
}

// The caller holds mutex_.
void EngineMetrics::AddSyncs(MetricSamples& samples) const {
  std::uint64_t failed = 0;
  for (const auto& [code, count] : failures_) failed += count;
  samples.Add("layercast_engine_syncs_total", {"committed"}, static_cast<double>(committed_));
  samples.Add("layercast_engine_syncs_total", {"failed"}, static_cast<double>(failed));
  samples.AddByCode("layercast_engine_sync_failures_total", {}, failures_);
  samples.Add("layercast_engine_sync_seconds", {}, syncs_);
  for (const char* stage : kReloadStages) {
    const auto found = stages_.find(stage);
    samples.Add("layercast_engine_stage_seconds", {stage}, found == stages_.end() ? Durations() : found->second);
  }
  auto bytes = bytes_;
  for (const std::string& way : WaysIn()) {
    bytes.try_emplace({way, "0"});
    const auto rate = rates_.find(way);
    samples.Add("layercast_engine_receive_bytes_per_second", {way}, rate == rates_.end() ? 0 : rate->second);
  }
  for (const auto& [from, count] : bytes) {
    samples.Add("layercast_engine_received_bytes_total", {from.first, from.second}, static_cast<double>(count));
  }
  samples.Add("layercast_engine_relayed_bytes_total", static_cast<double>(relayed_bytes_));
  samples.Add("layercast_engine_out_of_order_total", static_cast<double>(out_of_order_));
  samples.Add("layercast_engine_staged_bytes", static_cast<double>(staged_bytes_));
  samples.Add("layercast_engine_peak_buffered_bytes", static_cast<double>(peak_buffered_bytes_));
  const auto now = std::chrono::steady_clock::now();
  samples.Add("layercast_engine_version_age_seconds",
              committed_at_ ? std::chrono::duration<double>(now - *committed_at_).count() : 0);
}

}  // namespace layercast
