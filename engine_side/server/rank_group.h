// The ranks of one engine: their processes and the memory that outlives them. When one is lost all are started anew,
// over the same memory: weights in host memory survive, KV caches do not.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine_side/engine/collective_segment.h"
#include "engine_side/server/borrow.h"
#include "engine_side/server/model_files.h"
#include "engine_side/server/rank_handle.h"
#include "layercast/commit_policy.h"
#include "layercast/model/held_scales.h"
#include "layercast/parallel.h"
#include "src/base/unique_fd.h"

namespace layercast {

struct RankGroupOptions {
  std::string program;  // `layercast-rank` (cli/rank_main.cc), or what a device has in its place
  std::string model;
  std::string draft{};  // of `layercast-rank`
  int tp_size = 1;
  int pp_size = 1;                        // stages, of tp_size ranks each
  std::vector<std::int64_t> pp_layers{};  // ParallelConfig's pp_layer_partition
  bool expert_parallel = false;           // of `layercast-rank`
  ExpertPlacement expert_placement = ExpertPlacement::kContiguous;
  std::string recipe = "none";
  bool power_of_two_scales = false;
  bool requantize = false;
  HeldScales scales{};
  std::string weight_rules{};  // a file, or empty
  // What those files say, for the ranks. None: of ranks that read nothing.
  std::optional<ModelFiles> files{};
  std::uint64_t chunk_bytes = 4U << 20;  // of a reload, at most
  std::uint64_t buffer_limit = 0;        // of each rank: ReceiverOptions'
  std::string channel;                   // of a reload that names none; empty: the fastest
  std::string relay{};                   // of each rank: ReceiverOptions'
  bool allow_remote = false;             // ... relay_remote
  CommitPolicy commit = CommitPolicy::kStaged;
  std::string engine;
  bool on_device = false;           // the weights lie in memory of the ranks' processes, and are lost with one of them
  std::int64_t max_num_seqs = 256;  // sequences that are generated at once
  std::int64_t max_model_len = 0;   // tokens of a sequence; 0: as many as the model allows
  // What `rank` has received of what it loads. Called on several threads. May be empty.
  std::function<void(int rank, std::uint64_t bytes, std::uint64_t bytes_total)> on_progress{};
  // The ranks were started anew and have lost their weights. Called within the call that started them. May be empty.
  std::function<void()> on_weights_lost{};
};

// Resource; thread-safe.
class RankGroup {
 public:
  // Starts the processes; does not wait for them.
  explicit RankGroup(const RankGroupOptions& options);
  ~RankGroup();  // ends them
  // Ends the processes for good: calls under way fail, later ones too, and none is started any more.
  void End();
  bool ended() const;

  // Calls every rank; see TryAll and CallAll.
  std::vector<RankAnswer> Try(const std::string& method, const Json& params, Deadline deadline,
                              const HearAnswer& heard = {});
  std::vector<Json> Call(const std::string& method, const Json& params, Deadline deadline);
  // Has every rank give up that attempt of a reload, if it is in it; does not wait.
  void Cancel(std::uint64_t attempt);
  // By rank; see RankHandle::progress.
  std::vector<Json> progress() const;
  // True when a rank was gone, and all have been started anew.
  bool RestartIfLost();
  // All of them anew, whatever they are doing: their collective is broken, say.
  void Restart();
  std::vector<int> pids() const;
  CommitPolicy commit_policy() const { return options_.commit; }
  bool weights_outlive_ranks() const { return !options_.on_device; }
  // What follows from the options, of the ranks together: which of them they are is nobody's.
  ParallelConfig parallel() const { return {.tp_size = options_.tp_size, .pp_size = options_.pp_size}; }
  std::int64_t max_num_seqs() const { return options_.max_num_seqs; }
  EngineLayout layout() const {
    return {.tp_size = options_.tp_size,
            .pp_size = options_.pp_size,
            .pp_layers = options_.pp_layers,
            .expert_parallel = options_.expert_parallel,
            .expert_placement = options_.expert_placement,
            .recipe = options_.recipe,
            .power_of_two_scales = options_.power_of_two_scales};
  }

 private:
  struct Memory {
    UniqueFd weights, staging, version;
  };
  // The second owners are calls under way: a restart does not wait for them.
  using Ranks = std::shared_ptr<std::vector<std::unique_ptr<RankHandle>>>;
  Ranks Start(bool keep_failpoints);
  void RestartAll(const Ranks& old);
  Ranks ranks() const;

  const RankGroupOptions options_;
  const UniqueFd files_;                        // the options'
  std::vector<Memory> memory_;                  // by rank
  std::mutex restarting_;                       // before mutex_: held as long as a restart takes
  std::unique_ptr<CollectiveSegment> segment_;  // of the processes that run; guarded by restarting_
  mutable std::mutex mutex_;
  Ranks ranks_;         // guarded by mutex_
  bool ended_ = false;  // guarded by mutex_
};

}  // namespace layercast
