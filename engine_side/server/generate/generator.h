// Generates tokens: batches sequences, steps the ranks, and commits new versions between two forward steps. One thread
// does all three, so no forward pass ever sees a version change.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "engine_side/server/adapters/adapter_promotions.h"
#include "engine_side/server/adapters/adapter_registry.h"
#include "engine_side/server/generate/generator_counts.h"
#include "engine_side/server/generate/pause_lease.h"
#include "engine_side/server/generate/sequence.h"
#include "engine_side/server/group/rank_group.h"
#include "layercast/error.h"

namespace layercast {

// Finds a mode by its name: "wait", "abort" or "keep". Throws kInvalidArgument for any other.
PauseMode PauseModeNamed(const std::string& name);

// Resource; thread-safe.
class Generator {
 public:
  // `adapters` must outlive this.
  Generator(RankGroup& ranks, AdapterRegistry& adapters);
  ~Generator();  // sequences under way end as aborted

  // Queues a sequence. `done` is called once, on the generating thread, with "length", "stop", "aborted", or "failed"
  // if the sequence has an error. Once `abandoned` stops, the sequence ends as aborted, after the forward step or the
  // commit at hand, whether it is being generated, waits or is held. A sequence whose adapter is in a host copy waits
  // for it to be brought into a slot, and lets others by. Throws kFailedPrecondition if the engine is torn, and
  // kNotFound for an adapter that there is not.
  void Add(SequenceRequest request, std::function<void(const Sequence&, const char* finish)> done,
           std::stop_token abandoned = {});

  // Runs `run` on the generating thread between two steps, treating sequences under way as `mode` says. Returns when it
  // has run, and throws what it throws. With kWait, sequences under way finish first and new ones wait; but those that
  // a pause in kKeep holds cannot finish, so it does not wait for them. Throws kDeadlineExceeded if `run` could not
  // begin by the deadline, and kFailedPrecondition if another such call waits.
  void StandStill(PauseMode mode, const std::function<void()>& run, Deadline deadline);
  // Likewise, and from then on serves as the version that `commit` returns; sequences that were held go on with it.
  void Commit(PauseMode mode, const std::function<Version()>& commit, Deadline deadline);

  // Pauses generation until Resume, or until the lease is over. Returns once the pause holds. Throws kDeadlineExceeded,
  // and does not pause, if that takes beyond the deadline or the lease, and kCancelled if Resume or another Pause comes
  // before, or the deadline's stop is requested.
  void Pause(PauseMode mode, std::chrono::milliseconds lease, Deadline deadline);
  void Resume();

  // Marks the engine as torn, as `how` describes; an empty `how` says that it is not torn after all. Called from within
  // a commit, or when ranks have lost their weights. While torn, the engine generates no token: sequences end as
  // aborted, and new ones are refused. Committing a whole version heals it.
  void SetTorn(const std::string& how);
  // Marks the engine as asleep, in these words; empty: it is awake. Called while it stands still. While it sleeps, it
  // does as while it is torn.
  void SetAsleep(const std::string& how);

  GeneratorCounts Counts() const;

 private:
  struct StandStillCall {
    PauseMode mode;
    const std::function<void()>* run;
    std::promise<void> done;
  };
  void Run(const std::stop_token& stop);
  void ReportPause();
  void Admit();
  bool Settle(PauseMode mode);
  void RunStandStill();
  void NoteSizes();
  void NotePause(Deadline::Clock::duration pause);
  bool MayBegin(Sequence& sequence);
  void AwaitAdapter(Sequence& sequence);
  void SwitchAdapters();
  void Step(std::uint64_t generation);
  void Take(const Json& picked, const std::vector<Sequence*>& batch);
  const char* TakePick(const Json& pick, Sequence& sequence) const;
  void Drop(Json sequences);
  void Recover(const std::string& why, std::uint64_t failed);
  void AbortAll(std::list<Sequence>& sequences);
  void AbortAbandoned();
  void ForgetCaches();
  void DropCaches();
  Json RunningIds() const;
  void AbortWaiting();
  void AbortIfRefusing();
  std::string Refusal() const;
  bool MustWait(const StandStillCall& call) const;

  RankGroup& ranks_;
  AdapterRegistry& adapters_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::list<Sequence> waiting_;          // guarded by mutex_
  std::optional<StandStillCall> still_;  // guarded by mutex_
  PauseLease pause_;                     // guarded by mutex_
  std::string torn_;                     // empty: not torn; guarded by mutex_
  std::string asleep_;                   // empty: awake; guarded by mutex_
  bool settled_ = false;                 // a wait for an adapter is over; guarded by mutex_
  Durations pauses_;                     // guarded by mutex_
  std::atomic<std::size_t> begun_{0};    // the sizes of running_ and next_, for others to read
  std::atomic<std::size_t> held_up_{0};

  // The members below belong to the generating thread.
  std::list<Sequence> running_;
  std::list<Sequence>
      next_;  // in the order in which they came: there was room for them, but their adapters are awaited
  std::optional<Version> version_;
  std::uint64_t last_id_ = 0;
  std::uint64_t cached_by_ = 0;  // generation of the ranks that hold what the sequences have cached
  int failures_ = 0;             // of steps, one after another
  std::uint64_t switches_ = 0;   // of adapters to other versions, that sequences under way have taken note of

  AdapterPromotions promotions_;
  std::jthread thread_;
};

}  // namespace layercast
