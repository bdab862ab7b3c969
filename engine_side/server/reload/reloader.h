// Reloads an engine in two phases over all ranks: stage everywhere, then commit everywhere between two forward steps,
// or nowhere. Holds the engine's state, its version and its last report.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/server/generate/generator.h"
#include "engine_side/server/group/rank_group.h"
#include "engine_side/server/reload/adapter_loads.h"
#include "engine_side/server/reload/held_reload.h"
#include "engine_side/server/reload/rank_reload.h"
#include "layercast/version.h"
#include "src/session/link/kept_peers.h"
#include "src/trace/otlp/otlp_sender.h"

namespace layercast {

// Resource. Reload is for one thread at a time; Status, version and LoseWeights are thread-safe.
class Reloader {
 public:
  // `otlp` sends traces to a collector; null: nobody does.
  Reloader(RankGroup& ranks, Generator& generator, AdapterRegistry& adapters, std::string default_pause_mode,
           std::unique_ptr<OtlpSender> otlp = nullptr);

  // Says at which endpoint this engine answers: no reload borrows from there. Called before the first reload.
  void SetOwnEndpoint(std::string endpoint) { own_endpoint_ = std::move(endpoint); }
  // Called whenever another version is served, on the thread that commits. Set before the first reload.
  void OnServed(std::function<void()> served) { on_served_ = std::move(served); }
  // Returns {"ok", "version", "previous", "report", "error"}, and "trace" where the params ask for it. Never throws for
  // what the world did: after a failure the engine serves what it served before, or is torn if its commit policy allows
  // that. With `held`, it goes from step to step when it is told to.
  Json Reload(const Json& params, HeldReload* held = nullptr);
  // Loads an adapter, and gives it its name. Params are those of `load_adapter`. Returns what Reload does, of the
  // adapter, with its entry of `list_adapters` as "adapter". Never throws either.
  Json LoadAdapter(const Json& params, HeldReload* held = nullptr);
  // Returns {"state", "version", "progress", "torn", "previous", "keeps_previous", "commit", "ranks", "channel",
  // "last_report", "last_error"}.
  Json Status() const;
  std::optional<Version> version() const;
  std::optional<Version> previous() const;  // that the ranks keep; nullopt: none
  // Notes that the ranks' memory is gone, and with it what was served: the engine answers nothing until a whole version
  // lands. `cause` says what happened: "a rank was lost". May be called on any thread.
  void LoseWeights(const std::string& cause);

 private:
  // The versions of which the ranks' memory may hold parts. Without `to` it holds parts of none, because it is new.
  struct NotWhole {
    std::optional<Version> from;
    std::optional<Version> to;
  };

  // A version that is or was served whole, and what the status says of each rank with it. Value.
  struct Whole {
    std::optional<Version> version;
    Json digests;
  };

  // A reload under way. Value.
  struct UnderWay {
    std::uint64_t attempt = 0;
    std::chrono::steady_clock::time_point begin{};
  };

  static Json Progress(const UnderWay& reload, const std::vector<Json>& of_ranks);
  Json Stage(RankReload& reload, const Json& params, bool prepares, Deadline deadline);
  void AwaitWord(RankReload& reload, HeldReload& held, HeldReload::Word next, Deadline deadline);
  std::vector<FilledAdapter> FillAdaptersOrDrop(RankReload& reload, const Json& params, Deadline deadline);
  std::vector<FilledAdapter> FillAdapters(const RankReload& reload, const Json& params, Deadline deadline);
  void Commit(RankReload& reload, std::vector<FilledAdapter> adapters, PauseMode mode, HeldReload* held,
              Deadline deadline);
  void KeepOrigin(const Json& params);
  void AwaitWord(const FilledAdapter& filled, HeldReload& held, HeldReload::Word next, Deadline deadline);
  Version CommitOnRanks(RankReload& reload, Deadline deadline);
  // `before` is the last whole version before the one that is served now.
  void Verify(RankReload& reload, const Whole& before);
  std::vector<std::string> ServedDigests() const;
  Json Previous() const;

  void Enter(const std::string& state, const std::optional<UnderWay>& begun = {});
  void Serve(const std::optional<Version>& expected, const Version& version, Json digests);
  bool ServesOrIsTorn() const;
  Whole LastWhole() const;
  void Tear(const Whole& from, const Version& to, const std::string& why);
  void ServeOldVersionAgain();

  RankGroup& ranks_;
  Generator& generator_;
  AdapterRegistry& adapters_;
  AdapterLoads loads_;
  const std::string default_pause_mode_;
  KeptPeers publishers_;  // to which questions go
  const std::unique_ptr<OtlpSender> otlp_;

  // The members below belong to the reloading thread.
  std::string own_endpoint_;
  std::function<void()> on_served_;
  std::uint64_t attempt_ = 0;
  Json origin_;  // params of the path that was committed last

  mutable std::mutex mutex_;
  std::string state_ = "loading";      // guarded by mutex_
  std::optional<Version> version_;     // guarded by mutex_; empty while torn
  std::optional<NotWhole> torn_;       // guarded by mutex_
  std::optional<UnderWay> under_way_;  // guarded by mutex_
  bool lost_ = false;                  // the weights went with their processes, and no version landed since; likewise
  Json rank_digests_ = Json::array();  // of version_, or while torn of the version before; guarded by mutex_
  std::optional<Whole> previous_;      // that the ranks keep; guarded by mutex_
  Json last_report_;                   // guarded by mutex_
  Json last_error_;                    // guarded by mutex_
};

}  // namespace layercast
