// The receiver: decides which call is allowed when. It has the phases of a reload, its commit and its report. What
// fills staging is the stager.
#include "layercast/receiver.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "engine_side/reload/layout/padded_weights.h"
#include "engine_side/reload/pipeline/stage_clock.h"
#include "engine_side/reload/receive/attempt_stop.h"
#include "engine_side/reload/receive/one_at_a_time.h"
#include "engine_side/reload/receive/served_version.h"
#include "engine_side/reload/receive/stager.h"
#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/check.h"
#include "src/base/home_process.h"
#include "src/base/log.h"

namespace layercast {

class Receiver::Impl {
 public:
  Impl(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
       CapturedBuffers captured, const ReceiverOptions& options)
      : policy_(options.commit),
        captured_(TensorsIn(std::move(captured), *model, quantization)),
        failpoints_(FailPoints::FromEnvironment("rank" + std::to_string(parallel.engine_rank()))),
        stager_(std::move(model), parallel, quantization, captured_, options, failpoints_, report_),
        buffers_digest_(captured_.TableDigest()) {}

  // Makes a call of the user's; those below are made by it.
  template <class Call>
  decltype(auto) Alone(const char* name, const Call& call) {
    home_.Expect("a receiver");
    return calls_.Run(name, [&]() -> decltype(auto) { return NamingWhatRanOut(call); });
  }
  bool IsHere() const { return home_.IsHere(); }

  void Stage(ReloadSource source, std::uint64_t attempt) {
    if (source.from == nullptr) throw Error(ErrorCode::kInvalidArgument, "a source of no known kind");
    // The first load of an engine's own checkpoint is no reload: whoever starts it has said which.
    const bool reload = served_.version() || served_.torn() || source.from->is_published();
    if (reload) stager_.ExpectVouchedFor(source);
    Start();
    failpoints_.Suspend(!reload);
    attempt_ = attempt != 0 ? attempt : attempt_.load() + 1;
    OrFail([&] {
      if (source.partial) ExpectMayBePartial(source, served_.version().has_value());
      stager_.Open(std::move(source), attempt_, served_, stop_.Begin(attempt_));
      if (!WritesLayers()) staged_ = stager_.Receive();
    });
    phase_ = Phase::kStaged;
    report_.total_ms = MillisecondsSince(begin_);
  }

  // Closes the session with the publisher until Prepare, which may come much later: a publisher expects to hear from
  // the receivers that it has.
  void LetGoOfPublisher() { stager_.LetGo(); }

  void Prepare() {
    CheckStaged();
    if (prepared_) return;
    CheckMayWrite();
    stager_.Reach();
    prepared_ = true;
  }

  void Commit() {
    Prepare();
    try {
      captured_.CheckUnmoved();
      writing_ = true;
      if (WritesLayers()) staged_ = stager_.Receive();
      const StageClock::Scope timing(stager_.AccountOf("commit"));
      stager_.EnterStage("commit");
      stager_.committer().Commit();
      captured_.CheckUnmoved();
      LAYERCAST_CHECK(captured_.TableDigest() == buffers_digest_);
    } catch (...) {
      if (WritesLayers()) {
        Abort();
      } else {
        PutBackWhatWasWritten();  // the version is still staged
      }
      report_.total_ms = MillisecondsSince(begin_);
      throw;
    }
    writing_ = false;
    served_.Become(staged_, stager_.noise());
    report_.served_digest = staged_.digest;
    report_.total_ms = total_ms_at_commit_ = MillisecondsSince(begin_);
    verify_ms_at_commit_ = report_.stage_ms["verify"];
    phase_ = Phase::kIdle;
  }

  bool RollBack() {
    if (phase_ == Phase::kReceiving) Abandon();  // otherwise the rest would still be written
    writing_ = false;
    return served_.RollBack(stager_.committer(), stager_.noise(), report_.version);
  }

  void VerifyServed() {
    if (served_.torn()) throw Error(ErrorCode::kFailedPrecondition, "the captured buffers are torn: nothing to verify");
    if (!served_.version())
      throw Error(ErrorCode::kFailedPrecondition, "nothing was committed yet that could be verified");
    {
      report_.total_ms = total_ms_at_commit_;  // without what an earlier verification took
      report_.stage_ms["verify"] = verify_ms_at_commit_;
      const StageClock::Scope all({&report_.total_ms});
      const StageClock::Scope timing(stager_.AccountOf("verify"));
      stager_.EnterStage("verify");
      report_.served_digest = captured_.ServedDigest();
    }
    if (report_.served_digest == served_.digest()) return;
    const Digest expected = served_.digest();
    served_.Lose();
    throw Error(ErrorCode::kCorrupt, "the captured buffers do not hold what was committed: digest expected " +
                                         expected.ToHex() + ", read back " + report_.served_digest.ToHex());
  }

  void Abort() {
    Abandon();
    PutBackWhatWasWritten();
  }

  void ReleaseMemory() {
    ExpectNoLayerwiseReload();
    Abort();
    stager_.ReleaseMemory();
  }

  void LoseServed() {
    ReleaseMemory();
    served_.Discard(stager_.noise());
  }

  void RecordMetadata() {
    if (phase_ != Phase::kIdle) {
      throw Error(
          ErrorCode::kFailedPrecondition,
          "record_metadata_for_reloading must be called right after construction, not while a reload is active.");
    }
    captured_.CheckUnmoved();
    recorded_ = true;
  }

  void Initialize(const std::vector<TensorSpec>& specs) {
    if (!recorded_) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "record_metadata_for_reloading must be called before initialize_layerwise_reload.");
    }
    Start();
    OrFail([&] {
      stager_.Begin(specs);
      if (WritesLayers()) CheckMayWrite();
    });
    prepared_ = writing_ = WritesLayers();
    phase_ = Phase::kReceiving;
  }

  std::set<std::string> Load(WeightsIterator& weights) {
    if (phase_ != Phase::kReceiving) {
      throw Error(ErrorCode::kFailedPrecondition, "initialize_layerwise_reload must be called before load_weights.");
    }
    std::set<std::string> names;
    OrFail([&] { names = stager_.Load(weights); });
    return names;
  }

  ReloadReport Finalize() {
    if (phase_ != Phase::kReceiving) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "finalize_layerwise_processing called without a matching initialize_layerwise_reload.");
    }
    if (!WritesLayers()) OrFail([&] { staged_ = stager_.Receive(); });
    phase_ = Phase::kStaged;
    Commit();
    VerifyServed();
    return report_;
  }

  const Version& staged_version() const {
    CheckStaged();
    CheckKeepsStaged();
    return staged_.version;
  }

  void AdoptStaged(const Version& version) {
    Start();
    CheckKeepsStaged();
    OrFail([&] { staged_ = stager_.Adopt(version); });
    phase_ = Phase::kStaged;
  }

  void Cancel(std::uint64_t attempt) { stop_.Cancel(attempt); }
  std::uint64_t attempt() const { return attempt_; }
  void SetChannel(std::string channel) { stager_.SetChannel(std::move(channel)); }
  void SetTimeout(std::chrono::milliseconds timeout) { stager_.SetTimeout(timeout); }
  const std::optional<Version>& version() const { return served_.version(); }
  const std::optional<Torn>& torn() const { return served_.torn(); }
  const ReloadReport& report() const { return report_; }
  const CapturedBuffers& captured() const { return captured_; }
  std::optional<Noise> noise() { return stager_.noise().served(); }
  CapturedBuffers clean() { return stager_.noise().Clean(captured_); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kIdle, kReceiving, kStaged };  // kStaged: Commit may be called

  static double MillisecondsSince(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  // Starts a new reload. What was staged is dropped; what is being received is not, and throws.
  void Start() {
    ExpectNoLayerwiseReload();
    Abort();
    failpoints_.Suspend(false);
    report_ = ReloadReport();
    for (const char* stage : kReloadStages) report_.stage_ms[stage] = 0;  // also those that this way in leaves out
    report_.stage_ms.erase("plan");                                       // of a new layout alone
    report_.buffers_digest = buffers_digest_;
    begin_ = Clock::now();
    prepared_ = false;
    OrFail([&] { served_.Settle(stager_.committer(), stager_.noise()); });
  }

  void ExpectNoLayerwiseReload() const {
    if (phase_ != Phase::kReceiving) return;
    throw Error(ErrorCode::kFailedPrecondition,
                "a layerwise reload is already active. Call finalize_layerwise_processing first.");
  }

  void Abandon() {
    stager_.Abandon();
    staged_.source.reset();  // what is served has its own
    phase_ = Phase::kIdle;
  }

  // Buffers that do not fit the model are refused here, under every policy.
  bool WritesLayers() {
    stager_.committer();
    return layercast::WritesLayers(policy_);
  }

  void CheckMayWrite() {
    failpoints_.Hit("commit.prepare");
    captured_.CheckUnmoved();
  }

  void CheckKeepsStaged() const {
    if (!layercast::WritesLayers(policy_)) return;
    throw Error(ErrorCode::kUnsupported,
                "commit policy " + std::string(CommitPolicyName(policy_)) + " keeps no staged version");
  }

  void CheckStaged() const {
    if (phase_ == Phase::kStaged) return;
    throw Error(ErrorCode::kFailedPrecondition, "nothing is staged: stage a version before you commit it");
  }

  // Logs its own errors: an error is being thrown already that matters more. After an error here, the rank stays torn.
  void PutBackWhatWasWritten() {
    if (!writing_) return;
    try {
      RollBack();
    } catch (const std::exception& error) {
      log::error("putting the old version back: {}", error.what());
    }
  }

  // Makes a call. Whatever it throws ends the reload, and the report keeps what had happened.
  template <class Call>
  void OrFail(const Call& call) {
    try {
      call();
    } catch (...) {
      Abort();
      report_.total_ms = MillisecondsSince(begin_);
      throw;
    }
  }

  const HomeProcess home_;
  OneAtATime calls_;
  const CommitPolicy policy_;
  const CapturedBuffers captured_;
  FailPoints failpoints_;
  ReloadReport report_;
  Stager stager_;  // refers to the members above
  const Digest buffers_digest_;

  Phase phase_ = Phase::kIdle;
  bool recorded_ = false;
  bool prepared_ = false;  // what Prepare checks was checked
  bool writing_ = false;   // captured buffers may hold a part of a version
  std::atomic<std::uint64_t> attempt_{0};
  AttemptStop stop_;      // it and attempt_ are what other threads use
  StagedVersion staged_;  // what stager_ has staged or written last
  ServedVersion served_;
  Clock::time_point begin_;
  double total_ms_at_commit_ = 0;  // of the latest commit
  double verify_ms_at_commit_ = 0;
};

Receiver::Receiver(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
                   CapturedBuffers captured, const ReceiverOptions& options)
    : impl_(NamingWhatRanOut([&] {
        return std::make_unique<Impl>(GivenTree(std::move(model), parallel), parallel, quantization,
                                      std::move(captured), options);
      })) {}

Receiver::~Receiver() {
  if (!impl_->IsHere()) {  // its threads are in another process
    [[maybe_unused]] const Impl* const left = impl_.release();
  }
}

ReloadReport Receiver::ReloadWeights(ReloadSource source, std::uint64_t attempt) {
  return impl_->Alone("ReloadWeights", [&] {
    impl_->Stage(std::move(source), attempt);
    impl_->Commit();
    impl_->VerifyServed();
    return impl_->report();
  });
}

void Receiver::Stage(ReloadSource source, std::uint64_t attempt) {
  impl_->Alone("Stage", [&] {
    impl_->Stage(std::move(source), attempt);
    impl_->LetGoOfPublisher();
  });
}

void Receiver::Prepare() {
  impl_->Alone("Prepare", [&] { impl_->Prepare(); });
}
void Receiver::Commit() {
  impl_->Alone("Commit", [&] { impl_->Commit(); });
}
bool Receiver::RollBack() {
  return impl_->Alone("RollBack", [&] { return impl_->RollBack(); });
}
void Receiver::Abort() {
  impl_->Alone("Abort", [&] { impl_->Abort(); });
}
void Receiver::VerifyServed() {
  impl_->Alone("VerifyServed", [&] { impl_->VerifyServed(); });
}
void Receiver::ReleaseMemory() {
  impl_->Alone("ReleaseMemory", [&] { impl_->ReleaseMemory(); });
}
void Receiver::LoseServed() {
  impl_->Alone("LoseServed", [&] { impl_->LoseServed(); });
}
void Receiver::AdoptStaged(const Version& version) {
  impl_->Alone("AdoptStaged", [&] { impl_->AdoptStaged(version); });
}
void Receiver::SetChannel(std::string channel) {
  impl_->Alone("SetChannel", [&] { impl_->SetChannel(std::move(channel)); });
}
void Receiver::SetTimeout(std::chrono::milliseconds timeout) {
  impl_->Alone("SetTimeout", [&] { impl_->SetTimeout(timeout); });
}
void Receiver::Cancel(std::uint64_t attempt) { impl_->Cancel(attempt); }
std::uint64_t Receiver::attempt() const { return impl_->attempt(); }

void Receiver::record_metadata_for_reloading() {
  impl_->Alone("record_metadata_for_reloading", [&] { impl_->RecordMetadata(); });
}
void Receiver::initialize_layerwise_reload(std::vector<TensorSpec> specs) {
  impl_->Alone("initialize_layerwise_reload", [&] { impl_->Initialize(specs); });
}
std::set<std::string> Receiver::load_weights(WeightsIterator& weights) {
  return impl_->Alone("load_weights", [&] { return impl_->Load(weights); });
}
ReloadReport Receiver::finalize_layerwise_processing() {
  return impl_->Alone("finalize_layerwise_processing", [&] { return impl_->Finalize(); });
}

const std::optional<Version>& Receiver::version() const { return impl_->version(); }
const std::optional<Torn>& Receiver::torn() const { return impl_->torn(); }
const ReloadReport& Receiver::report() const { return impl_->report(); }
const CapturedBuffers& Receiver::captured() const { return impl_->captured(); }
std::optional<Noise> Receiver::noise() const { return impl_->noise(); }
CapturedBuffers Receiver::clean() const { return impl_->clean(); }
const Version& Receiver::staged_version() const { return impl_->staged_version(); }

}  // namespace layercast
