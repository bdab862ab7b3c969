// Puts an engine to sleep and wakes it up: its ranks lend their memory back while a trainer has the machine, and every
// address stays. Used by the service.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "engine_side/server/generate/generator.h"
#include "engine_side/server/group/rank_group.h"
#include "engine_side/server/reload/reloader.h"
#include "src/base/memory/sleepable_memory.h"

namespace layercast {

// Resource. Status is thread-safe; all else is for the reloading thread.
class Sleeper {
 public:
  Sleeper(RankGroup& ranks, Generator& generator, Reloader& reloader)
      : ranks_(ranks), generator_(generator), reloader_(reloader) {}

  // Both take params and return the result of the method of that name (RPC.md), and throw what the world did: the
  // engine then is as awake as before, but for weights that were discarded.
  Json Sleep(const Json& params);
  Json WakeUp(const Json& params);
  // Weights that were discarded wake up, to be filled. Throws kFailedPrecondition if they sleep with what they are to
  // keep.
  void WakeToReload();
  // Throws kFailedPrecondition, naming the call, if the engine sleeps.
  void ExpectAwake(const std::string& call) const;
  // Puts ranks to sleep that were started anew meanwhile.
  void KeepAsleep();

  // {"level", "tags"}, or null while awake.
  Json Status() const;

 private:
  void WakeRanks(const std::set<std::string>& tags, Deadline deadline);
  void Settle(std::set<std::string> tags);
  std::string Words() const;

  RankGroup& ranks_;
  Generator& generator_;
  Reloader& reloader_;

  mutable std::mutex mutex_;
  std::set<std::string> asleep_;          // tags; guarded by mutex_
  SleepLevel level_ = SleepLevel::kKeep;  // of the weights, if they sleep; guarded by mutex_
  std::uint64_t generation_ = 0;          // of the ranks that were put to sleep
};

}  // namespace layercast
