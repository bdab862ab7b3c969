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
};

// Resource; thread-safe. Threads: "lc-rpc" takes calls, one generates, one reloads, three for each rank.
class EngineService {
 public:
  // Starts the ranks and loads the model. Throws what is wrong with it.
  explicit EngineService(const EngineServiceOptions& options);
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  std::string endpoint() const;
  // {"ready": true, ...}: the line that says so.
  Json Ready() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
