// The service of one engine: `reload_weights`, `generate`, `status` and the rest over RPC (docs/cli.md, RPC.md), above
// a group of ranks. What `layercast serve` runs.
#pragma once

#include <memory>
#include <string>

#include "engine_side/server/rank_group.h"
#include "src/control/rpc.h"

namespace layercast {

struct EngineServiceOptions {
  RankGroupOptions ranks;
  std::string endpoint = "tcp://127.0.0.1:0";
  bool allow_remote = false;
  std::string pause_mode = "wait";  // of a reload that names none
  Json first_load;                  // as `reload_weights` takes it: where the weights come from that it starts with
};

// Resource; thread-safe. Threads: "lc-rpc" takes calls, one generates, one reloads, three for each rank.
class EngineService {
 public:
  // Starts the ranks and answers calls; until the model is loaded only `status`. Throws what is wrong with an option.
  // The thread that makes it outlives it (RankHandle).
  explicit EngineService(const EngineServiceOptions& options);
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  // Loads the model from its folder: the engine serves. Throws what is wrong with it.
  void LoadModel();
  // Ends the ranks, whatever they are doing: what is under way fails. For any thread.
  void End();

  std::string endpoint() const;
  // {"ready": true, ...}: the line that says so.
  Json Ready() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
