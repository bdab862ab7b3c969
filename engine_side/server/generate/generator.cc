#include "engine_side/server/generate/generator.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <list>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/threads/thread_name.h"

namespace layercast {
namespace {

constexpr std::size_t kMostTokensAStep = 8192;
constexpr int kMostFailures = 3;
constexpr std::chrono::milliseconds kStepTimeout{60'000};
constexpr std::chrono::milliseconds kIdle{200};

}  // namespace

PauseMode PauseModeNamed(const std::string& name) {
  if (name == "wait") return PauseMode::kWait;
  if (name == "abort") return PauseMode::kAbort;
  if (name == "keep") return PauseMode::kKeep;
  throw Error(ErrorCode::kInvalidArgument, "pause mode: expected wait, abort or keep, got '" + name + "'");
}

Generator::Generator(RankGroup& ranks, AdapterRegistry& adapters)
    : ranks_(ranks), adapters_(adapters), promotions_(ranks, adapters, [this] {
        const std::lock_guard lock(mutex_);
        settled_ = true;
        changed_.notify_all();
      }) {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

Generator::~Generator() {
  thread_.request_stop();
  changed_.notify_all();
}

void Generator::Add(SequenceRequest request, std::function<void(const Sequence&, const char* finish)> done,
                    std::stop_token abandoned) {
  if (!request.adapter.empty()) adapters_.Expect(request.adapter);
  const std::lock_guard lock(mutex_);
  if (const std::string refusal = Refusal(); !refusal.empty()) throw Error(ErrorCode::kFailedPrecondition, refusal);
  Sequence sequence;
  sequence.id = ++last_id_;
  sequence.request = std::move(request);
  sequence.done = std::move(done);
  sequence.abandoned = std::move(abandoned);
  waiting_.push_back(std::move(sequence));
  changed_.notify_all();
}

void Generator::StandStill(PauseMode mode, const std::function<void()>& run, Deadline deadline) {
  std::future<void> done;
  {
    const std::lock_guard lock(mutex_);
    if (still_) throw Error(ErrorCode::kFailedPrecondition, "the engine is about to stand still for another call");
    still_.emplace(StandStillCall{mode, &run, {}});
    done = still_->done.get_future();
    changed_.notify_all();
  }
  if (done.wait_until(deadline.at()) != std::future_status::ready) {
    const std::lock_guard lock(mutex_);
    // If it has not begun, it never will. Otherwise it ends soon: wait for that, whatever the deadline.
    if (still_ && still_->run == &run) {
      still_.reset();
      throw Error(ErrorCode::kDeadlineExceeded, "sequences under way did not finish before the deadline");
    }
  }
  done.get();
}

void Generator::Commit(PauseMode mode, const std::function<Version()>& commit, Deadline deadline) {
  const std::function<void()> run = [&] {
    version_ = commit();
    {
      const std::lock_guard lock(mutex_);
      torn_.clear();
    }
    ForgetCaches();  // keys and values of the old version are never mixed with the new one's
  };
  StandStill(mode, run, deadline);
}

void Generator::Pause(PauseMode mode, std::chrono::milliseconds lease, Deadline deadline) {
  std::future<void> holds;
  {
    const std::lock_guard lock(mutex_);
    holds = pause_.Begin(mode, lease);
    changed_.notify_all();
  }
  while (holds.wait_until(deadline.NextLook()) != std::future_status::ready && !deadline.Passed()) {
  }
  const bool settled = holds.wait_for(std::chrono::milliseconds(0)) == std::future_status::ready;
  if (settled && !deadline.Stopped()) return holds.get();
  Resume();
  if (deadline.Stopped()) throw Error(ErrorCode::kCancelled, "the pause was given up before it held");
  throw Error(ErrorCode::kDeadlineExceeded, "sequences under way did not finish before the deadline of the pause");
}

void Generator::Resume() {
  const std::lock_guard lock(mutex_);
  pause_.End(Error(ErrorCode::kCancelled, "the pause was ended by a resume before it held"));
  changed_.notify_all();
}

void Generator::SetTorn(const std::string& how) {
  const std::lock_guard lock(mutex_);
  torn_ = how;
}

void Generator::SetAsleep(const std::string& how) {
  const std::lock_guard lock(mutex_);
  asleep_ = how;
}

// Why no token is generated now; empty: it is. The caller holds mutex_.
std::string Generator::Refusal() const {
  if (!asleep_.empty()) return "the engine is " + asleep_;
  return torn_.empty() ? "" : "the engine is torn " + torn_;
}

// Whether sequences under way have to finish before this call, and can. The caller holds mutex_.
bool Generator::MustWait(const StandStillCall& call) const {
  if (call.mode != PauseMode::kWait || running_.empty() || ranks_.ended()) return false;
  return pause_.mode().value_or(PauseMode::kWait) == PauseMode::kWait;
}

void Generator::Run(const std::stop_token& stop) {
  NameThisThread("lc-generate");
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, kIdle, [this] {
        const bool work = !running_.empty() || !waiting_.empty() || settled_;
        return still_ || pause_.awaited() || (!pause_.Paused() && work);
      });
      pause_.EndIfOver();
    }
    if (stop.stop_requested()) break;
    AbortAbandoned();  // before a call that would wait for them
    RunStandStill();
    const std::uint64_t generation = ranks_.generation();  // before it is asked whether their weights were lost
    AbortIfRefusing();
    ReportPause();
    Admit();
    bool step = !running_.empty();
    {
      const std::lock_guard lock(mutex_);
      if (pause_.mode().value_or(PauseMode::kWait) != PauseMode::kWait) step = false;
    }
    SwitchAdapters();
    NoteSizes();
    if (step && !running_.empty()) Step(generation);
    NoteSizes();
  }
  AbortAll(running_);
  AbortWaiting();
}

// Reports a pause that holds now.
void Generator::ReportPause() {
  std::optional<PauseMode> mode;
  {
    const std::lock_guard lock(mutex_);
    mode = pause_.awaited();
  }
  if (!mode || !Settle(*mode)) return;
  const std::lock_guard lock(mutex_);
  pause_.Hold(*mode);
}

// Ends the sequences under way if that is what `mode` wants. Returns whether they are as it wants them.
bool Generator::Settle(PauseMode mode) {
  if (mode == PauseMode::kAbort && !running_.empty()) {
    Json sequences = RunningIds();
    AbortAll(running_);
    Drop(std::move(sequences));
  }
  return mode == PauseMode::kKeep || running_.empty();
}

void Generator::RunStandStill() {
  std::optional<StandStillCall> call;
  {
    const std::lock_guard lock(mutex_);
    if (!still_) return;
    if (MustWait(*still_)) return;
    call = std::move(still_);
    still_.reset();
  }
  const auto begin = Deadline::Clock::now();
  Settle(call->mode);
  std::exception_ptr failed;
  try {
    (*call->run)();
  } catch (...) {
    DropCaches();
    AbortIfRefusing();
    failed = std::current_exception();
  }
  NotePause(Deadline::Clock::now() - begin);  // before who called can ask for it
  failed ? call->done.set_exception(failed) : call->done.set_value();
}

void Generator::NoteSizes() {
  begun_ = running_.size();
  held_up_ = next_.size();
}

void Generator::NotePause(Deadline::Clock::duration pause) {
  const std::lock_guard lock(mutex_);
  pauses_.Add(std::chrono::duration<double>(pause).count());
}

GeneratorCounts Generator::Counts() const {
  const std::lock_guard lock(mutex_);
  return {.running = begun_, .waiting = waiting_.size() + held_up_, .pauses = pauses_};
}

// Drops all caches. In a commit that failed, some ranks may have dropped theirs and others not.
void Generator::DropCaches() {
  ForgetCaches();
  if (!running_.empty()) Drop(RunningIds());
}

Json Generator::RunningIds() const {
  Json ids = Json::array();
  for (const Sequence& sequence : running_) ids.push_back(sequence.id);
  return ids;
}

void Generator::ForgetCaches() {
  for (Sequence& sequence : running_) sequence.cached = 0;
}

void Generator::Step(std::uint64_t generation) {
  if (std::exchange(cached_by_, generation) != generation) ForgetCaches();  // whoever has started them anew
  std::vector<Sequence*> batch;
  Json steps = Json::array();
  std::size_t tokens = 0;
  for (Sequence& sequence : running_) {
    std::vector<std::int32_t> next = sequence.NextTokens();
    if (!batch.empty() && tokens + next.size() > kMostTokensAStep) break;
    tokens += next.size();
    const SequenceRequest& request = sequence.request;
    steps.push_back({{"sequence", sequence.id},
                     {"tokens", std::move(next)},
                     {"temperature", request.temperature},
                     {"top_p", request.top_p},
                     {"top_k", request.top_k},
                     {"seed", request.seed},
                     {"adapter", sequence.adapter.slot()},
                     {"index", sequence.tokens.size()}});
    batch.push_back(&sequence);
  }
  try {
    const std::vector<Json> answers =
        ranks_.Call("step", {{"steps", std::move(steps)}}, Deadline::After(kStepTimeout), generation);
    Take(answers.at(static_cast<std::size_t>(ranks_.parallel().sampling_rank())).at("picked"), batch);
    failures_ = 0;
  } catch (const std::exception& error) {
    Recover(error.what(), generation);
  }
}

void Generator::Take(const Json& picked, const std::vector<Sequence*>& batch) {
  Json ended = Json::array();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Sequence& sequence = *batch[i];
    const char* const finish = TakePick(picked.at(i), sequence);
    if (finish == nullptr) continue;
    ended.push_back(sequence.id);
    sequence.done(sequence, finish);
    sequence.done = nullptr;
  }
  if (ended.empty()) return;
  running_.remove_if([](const Sequence& sequence) { return sequence.done == nullptr; });
  Drop(std::move(ended));
}

// Adds what was picked for a sequence. Returns how the sequence ends with it, or null if it goes on.
const char* Generator::TakePick(const Json& pick, Sequence& sequence) const {
  if (pick.contains("error")) {
    sequence.error = ErrorFromJson(pick["error"]);
    log::warn("generating: {}", sequence.error->what());
    return "failed";
  }
  sequence.cached = sequence.request.prompt.size() + sequence.tokens.size();
  sequence.tokens.push_back(pick.at("token").get<std::int32_t>());
  sequence.logprobs.push_back(pick.at("logprob").get<double>());
  sequence.versions.push_back({version_.value_or(Version{}), {}});
  if (sequence.adapter) sequence.versions.back().adapter = sequence.adapter.version();
  if (sequence.request.picked) sequence.request.picked(sequence);
  return sequence.Finish();
}

// Tells the ranks to drop the caches of these sequences.
void Generator::Drop(Json sequences) {
  const std::uint64_t generation = ranks_.generation();
  try {
    ranks_.Call("drop", {{"sequences", std::move(sequences)}}, Deadline::After(kStepTimeout));
  } catch (const Error& error) {
    Recover(error.what(), generation);
  }
}

// Recovers from a lost rank or a broken group: starts the processes anew over the same weights, if they are still those
// of the generation that failed. Sequences go on from their tokens, unless several steps in a row have failed.
void Generator::Recover(const std::string& why, std::uint64_t failed) {
  log::warn("generating: {}", why);
  if (++failures_ >= kMostFailures) {
    AbortAll(running_);
    failures_ = 0;
  }
  ranks_.Restart(failed);  // where it cannot, the next step fails and leads here again
}

void Generator::AbortAll(std::list<Sequence>& sequences) {
  for (Sequence& sequence : sequences) {
    if (sequence.done != nullptr) sequence.done(sequence, "aborted");  // else it has ended in the step that failed
  }
  sequences.clear();
}

// Ends the sequences whose answers nobody waits for any more, also those that a pause holds.
void Generator::AbortAbandoned() {
  std::list<Sequence> abandoned;
  const auto take = [&abandoned](std::list<Sequence>& from) {
    for (auto at = from.begin(); at != from.end();) {
      const auto sequence = at++;
      if (sequence->abandoned.stop_requested()) abandoned.splice(abandoned.end(), from, sequence);
    }
  };
  take(running_);
  Json begun = Json::array();
  for (const Sequence& sequence : abandoned) begun.push_back(sequence.id);
  take(next_);
  {
    const std::lock_guard lock(mutex_);
    take(waiting_);
  }
  AbortAll(abandoned);
  if (!begun.empty()) Drop(std::move(begun));
}

void Generator::AbortIfRefusing() {
  {
    const std::lock_guard lock(mutex_);
    if (Refusal().empty()) return;
  }
  AbortAll(running_);
  AbortWaiting();
}

void Generator::AbortWaiting() {
  std::list<Sequence> waiting = std::exchange(next_, {});
  {
    const std::lock_guard lock(mutex_);
    waiting.splice(waiting.end(), waiting_);
  }
  AbortAll(waiting);
}

}  // namespace layercast
