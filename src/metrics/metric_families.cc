#include "src/metrics/metric_families.h"

namespace layercast {
namespace {

using enum MetricKind;

// Names follow Prometheus' habits: base units, units in the plural, `_total` on what only grows. No label grows without
// bound: a peer is a small number, and a version's step is a value.
constexpr MetricFamily kFamilies[] = {
    // What an engine serves, and how it came there.
    {"layercast_engine_state", kGauge, "state", "1 for the state that the engine is in, 0 for the others."},
    {"layercast_engine_served_step", kGauge, "lineage", "The step of the version that is served; none while torn."},
    {"layercast_engine_version_age_seconds", kGauge, "", "Since the served version was committed; 0 before the first."},
    {"layercast_engine_syncs_total", kCounter, "outcome", "Syncs that ended, the first load included."},
    {"layercast_engine_sync_failures_total", kCounter, "code", "Syncs that failed, by the error's code."},
    {"layercast_engine_sync_seconds", kDurations, "", "How long committed syncs took, from the call to reading back."},
    {"layercast_engine_stage_seconds", kDurations, "stage",
     "How long each stage of committed syncs took; stages overlap."},
    {"layercast_engine_received_bytes_total", kCounter, "channel peer",
     "What came, failed syncs included; peer: the rank of the publisher among those of one version."},
    {"layercast_engine_relayed_bytes_total", kCounter, "", "Of what came, that which other engines relayed."},
    {"layercast_engine_receive_bytes_per_second", kGauge, "channel",
     "What the slowest rank took a second, in the last sync over that channel; 0 before the first."},
    {"layercast_engine_out_of_order_total", kCounter, "",
     "Stretches of streams in which layers were mixed, each warned of once."},
    {"layercast_engine_pause_seconds", kDurations, "",
     "How long no token was generated because a version was committed, or the engine fell asleep or woke."},
    {"layercast_engine_staged_bytes", kGauge, "", "What the commit policy keeps beside what is served, all ranks."},
    {"layercast_engine_peak_buffered_bytes", kGauge, "", "The most that incomplete layers held in the last sync."},
    {"layercast_engine_adapter_bytes", kGauge, "tier", "What adapters take on a rank: in slots, and in host copies."},
    {"layercast_engine_refusals_total", kCounter, "code", "Calls that were answered with an error."},
    {"layercast_engine_calls_waiting", kGauge, "", "Calls that wait for the reloading thread."},
    {"layercast_engine_sequences", kGauge, "state", "Sequences that are being generated, and that wait for it."},
    {"layercast_engine_rank_restarts_total", kCounter, "", "How often all ranks were started anew."},
    // What the ranks of an engine relay.
    {"layercast_relay_sessions", kGauge, "rank", "Receivers that have a session with the rank's relay now."},
    {"layercast_relay_served_bytes_total", kCounter, "rank", "What receivers say that they took from the relay."},
    {"layercast_relay_refusals_total", kCounter, "rank code", "What the relay refused."},
    // What a publisher offers, and who takes it.
    {"layercast_publisher_published_total", kCounter, "", "Versions that were published."},
    {"layercast_publisher_offered_step", kGauge, "lineage", "The step of the newest version that is kept."},
    {"layercast_publisher_version_age_seconds", kGauge, "", "Since the newest version was published; 0 before it."},
    {"layercast_publisher_versions", kGauge, "state", "Versions that are there; pinned ones are kept ones too."},
    {"layercast_publisher_retained_bytes", kGauge, "", "What all versions take; what several have counts once."},
    {"layercast_publisher_sessions", kGauge, "", "Receivers that have a session now."},
    {"layercast_publisher_peer_info", kGauge, "peer engine", "1: which engine has that number."},
    {"layercast_publisher_taken_bytes_total", kCounter, "peer",
     "What the engine's ranks took, relayed bytes included."},
    {"layercast_publisher_taken_bytes_per_second", kGauge, "peer",
     "What the engine's ranks took a second while they last took something."},
    {"layercast_publisher_syncs_total", kCounter, "peer", "Versions that all ranks of the engine took whole."},
    {"layercast_publisher_peer_step", kGauge, "peer lineage", "The last step that all ranks of the engine took whole."},
    {"layercast_publisher_peer_behind_steps", kGauge, "peer lineage",
     "Steps between that and the newest that is kept of the lineage."},
    {"layercast_publisher_peer_behind_seconds", kGauge, "peer lineage",
     "Since the oldest kept version that is newer than that was published; 0: there is none."},
    {"layercast_publisher_refusals_total", kCounter, "code", "What receivers were refused."},
    {"layercast_publisher_queued_orders", kGauge, "", "Folders that wait to be published."},
};

}  // namespace

std::vector<std::string_view> MetricFamily::label_names() const {
  std::vector<std::string_view> names;
  for (std::string_view left = labels; !left.empty();) {
    const std::size_t space = left.find(' ');
    names.push_back(left.substr(0, space));
    left = space == std::string_view::npos ? std::string_view() : left.substr(space + 1);
  }
  return names;
}

std::span<const MetricFamily> MetricFamilies() { return kFamilies; }

}  // namespace layercast
