// The ranks of one engine: their processes, and the memory that outlives them. If one process is lost, all are started
// anew over the same memory: weights in host memory survive, KV caches do not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine_side/engine/ranks/collective_segment.h"
#include "engine_side/server/group/borrow.h"
#include "engine_side/server/group/engine_options.h"
#include "engine_side/server/group/model_files.h"
#include "engine_side/server/group/rank_handle.h"
#include "layercast/parallel.h"
#include "src/base/unique_fd.h"
#include "src/net/keys/keys.h"

namespace layercast {

// Value.
struct RankGroupOptions : EngineOptions {
  std::string program;  // `layercast-rank` (cli/rank/rank_main.cc), or a device's own
  // The contents of `model`, `draft` and `weight_rules`, for the ranks; nullopt for ranks that read none.
  std::optional<ModelFiles> files{};
  bool on_device = false;  // weights are in device memory of the ranks' processes, and die with them
  // Reports that a rank is lost, and why. Called on several threads. May be empty.
  std::function<void(int rank, const Error& why)> on_rank_lost{};
  // Reports that the ranks are being started anew and have lost their weights. Called within the call that starts them.
  // May be empty.
  std::function<void()> on_weights_lost{};
};

// Resource; thread-safe.
class RankGroup {
 public:
  // Starts the processes; does not wait for them.
  explicit RankGroup(const RankGroupOptions& options);
  ~RankGroup();  // ends them
  // Ends the processes for good: calls under way and later ones fail, and no process is started any more.
  void End();
  bool ended() const { return ended_.stop_requested(); }
  // A stop is requested when the processes are ended for good: for waits that are of no use from then on.
  std::stop_token ending() const { return ended_.get_token(); }

  // Both call every rank: Try like TryAll, Call like CallAll. With `generation`, Call throws kUnavailable, and calls
  // none, if the ranks are no longer those: for calls that build on what these ranks remember.
  std::vector<RankAnswer> Try(const std::string& method, const Json& params, Deadline deadline,
                              const HearAnswer& heard = {});
  std::vector<Json> Call(const std::string& method, const Json& params, Deadline deadline,
                         std::optional<std::uint64_t> generation = std::nullopt);
  // Tells every rank to give up this attempt of a reload, if it is in it. Does not wait.
  void Cancel(std::uint64_t attempt);
  // Likewise of a "compare" call that has this number.
  void CancelComparison(std::uint64_t comparison);
  // Likewise the load of an adapter that has this number.
  void CancelAdapterLoad(std::uint64_t load);
  // The progress of each rank; see RankHandle::progress.
  std::vector<Json> progress() const;
  // The number of times that all ranks were started anew: tells which processes a call may have reached.
  std::uint64_t generation() const;
  // Starts all ranks anew if one is gone. If they cannot be started now, the log says why, and calls go on failing with
  // what became of the one that is gone.
  void RestartIfLost();
  // Likewise, whatever the ranks are doing, for instance because their collective is broken. Does nothing if they are
  // no longer those of `failed`, the generation read before the call that failed: another caller has then started them
  // anew already.
  void Restart(std::uint64_t failed);
  std::vector<int> pids() const;
  const std::string& engine() const { return options_.engine; }  // its name in handshakes
  Keys keys() const { return Keys::From(options_.keys); }
  CommitPolicy commit_policy() const { return options_.commit; }
  bool relays() const { return !options_.relay.empty(); }
  bool keeps_previous() const { return options_.keep_previous; }
  bool weights_outlive_ranks() const { return !options_.on_device; }
  // The sizes that the options set. The rank numbers in it are meaningless.
  ParallelConfig parallel() const { return {.tp_size = options_.tp_size, .pp_size = options_.pp_size}; }
  std::int64_t max_num_seqs() const { return options_.max_num_seqs; }
  EngineLayout layout() const {
    return {.tp_size = options_.tp_size,
            .pp_size = options_.pp_size,
            .pp_layers = options_.pp_layers,
            .expert_parallel = options_.expert_parallel,
            .expert_placement = options_.expert_placement,
            .recipe = options_.recipe,
            .power_of_two_scales = options_.power_of_two_scales,
            .adapters = {options_.max_adapter_rank, options_.adapter_dtype, options_.adapter_modules}};
  }

 private:
  struct Memory {
    UniqueFd weights, staging, adapters, version;
  };
  // Calls under way are the second owners: a restart does not wait for them.
  using Ranks = std::shared_ptr<std::vector<std::unique_ptr<RankHandle>>>;
  Ranks Start(bool keep_failpoints);
  void RestartAll(const Ranks& old);
  Ranks ranks(std::optional<std::uint64_t> generation = std::nullopt) const;
  void TellToCancel(const Json& params);

  const RankGroupOptions options_;
  const UniqueFd files_;                        // the contents of options_.files
  std::vector<Memory> memory_;                  // indexed by rank
  std::mutex restarting_;                       // locked before mutex_; held for a whole restart
  std::unique_ptr<CollectiveSegment> segment_;  // of the running processes; guarded by restarting_
  mutable std::mutex mutex_;
  Ranks ranks_;                   // guarded by mutex_
  std::uint64_t generation_ = 0;  // of ranks_; guarded by mutex_
  std::stop_source ended_;        // requested under mutex_
};

}  // namespace layercast
