// The service of one engine on top of its group of ranks: `reload_weights`, `generate`, `status` and the rest over RPC
// (docs/cli.md, RPC.md). This is what `layercast serve` runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine_side/server/group/rank_group.h"
#include "engine_side/server/http/engine_door.h"
#include "engine_side/server/metrics/engine_metrics.h"
#include "engine_side/server/reload/staleness.h"
#include "src/control/rpc.h"
#include "src/trace/otlp/otlp_target.h"

namespace layercast {

struct EngineServiceOptions {
  RankGroupOptions ranks;
  std::string endpoint = "tcp://127.0.0.1:0";
  // Folders: what lies in them, or is one of them, may be named by whoever calls. Empty: nothing may, but over ipc://,
  // which the engine's own user alone can open, anything.
  std::vector<std::string> allow_paths{};
  std::string pause_mode = "wait";                // for a reload that names none
  std::string adapter_switch = "finish";          // AdapterSwitchNamed
  std::optional<DType> adapter_dtype{};           // of the slots; empty: the model's
  std::vector<Json> first_adapters{};             // likewise, as `load_adapter` params
  MetricsOptions metrics{};                       // for Prometheus
  EngineDoorOptions door{};                       // for who asks over HTTP
  std::optional<OtlpTarget> otlp{};               // where traces of syncs are sent
  std::uint64_t connection_budget = 256U << 20;   // RpcServerOptions
  std::string follow{};                           // publishers: whose newest counts until a version comes from others
  std::optional<StalenessBound> max_staleness{};  // for a `generate` that names none
  Json first_load;                                // where the first weights come from, as `reload_weights` params
};

// Resource; thread-safe. Threads: "lc-rpc" takes calls, one generates, one reloads, "lc-waits" and
// "lc-follow" answer calls that wait for a version, two for each rank (RankHandle).
class EngineService {
 public:
  // Starts the ranks and begins to answer calls; until the model is loaded, `status` is the only one. Throws what is
  // wrong with an option. The kernel ends the ranks with the thread that makes this, which must therefore live longer
  // (see RankHandle).
  explicit EngineService(const EngineServiceOptions& options);
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  // Loads the model as `first_load` says, after which the engine serves. Throws what is wrong with it.
  void LoadModel();
  // Ends the ranks, whatever they are doing; calls under way fail. May be called on any thread.
  void End();

  std::string endpoint() const;
  // {"ready": true, ...}: the line that says that the engine is ready.
  Json Ready() const;
  // What the engine answers to `status`. May be called on any thread.
  Json Status() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
