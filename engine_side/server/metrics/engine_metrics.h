// What an engine tells Prometheus: what it is at when it is asked, and what its syncs have added up to. An engine that
// nobody asks has none of this.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/server/generate/generator_counts.h"
#include "layercast/error.h"
#include "src/control/json_forms.h"
#include "src/metrics/metric_samples.h"
#include "src/metrics/metrics_endpoint.h"

namespace layercast {

// Where metrics are served. Value.
struct MetricsOptions {
  std::string bind{};  // "HOST:PORT"; empty: nowhere
  bool open = false;   // also beyond loopback
};

// What an engine knows of itself just now. Value.
struct EngineLook {
  Json status;  // as the call answers it
  GeneratorCounts generator{};
  std::size_t calls_waiting = 0;
  std::uint64_t restarts = 0;  // of all ranks
  std::map<ErrorCode, std::uint64_t> refusals{};
  std::vector<Json> relays{};  // of each rank, RelayCountsToJson or null; empty: none relays
};

// Resource; thread-safe.
class EngineMetrics {
 public:
  // Throws what MetricsEndpoint throws. `look` is called on its threads.
  EngineMetrics(const MetricsOptions& options, std::function<EngineLook()> look);

  // A sync has ended so: a Reloader's outcome.
  void Synced(const Json& outcome);
  std::string address() const { return endpoint_.address(); }

 private:
  void NoteBytes(const Json& report);
  void NoteStages(const Json& report);
  MetricSamples Samples();
  void AddSyncs(MetricSamples& samples) const;

  const std::function<EngineLook()> look_;
  mutable std::mutex mutex_;
  // All of these are guarded by mutex_.
  std::uint64_t committed_ = 0;
  std::map<ErrorCode, std::uint64_t> failures_;
  Durations syncs_;
  std::map<std::string, Durations> stages_;
  std::map<std::pair<std::string, std::string>, std::uint64_t> bytes_;  // by channel and peer
  std::map<std::string, double> rates_;                                 // by channel, of its last sync
  std::uint64_t relayed_bytes_ = 0;
  std::uint64_t out_of_order_ = 0;
  std::uint64_t staged_bytes_ = 0;         // of the last sync
  std::uint64_t peak_buffered_bytes_ = 0;  // likewise
  std::optional<std::chrono::steady_clock::time_point> committed_at_;

  MetricsEndpoint endpoint_;  // the last: it asks for all of them
};

}  // namespace layercast
