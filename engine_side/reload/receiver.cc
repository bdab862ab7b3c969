// Which call is right when: the phases of a reload, its commit and its report. What fills staging is the stager.
#include "layercast/receiver.h"

#include <chrono>
#include <utility>

#include "engine_side/reload/commit.h"
#include "engine_side/reload/stager.h"
#include "layercast/error.h"

namespace layercast {
namespace {

constexpr const char* kStages[] = {"receive",  "layer_buffer", "materialize", "fuse_and_shard",
                                   "quantize", "verify",       "commit"};

}  // namespace

class Receiver::Impl {
 public:
  Impl(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
       CapturedBuffers captured, const ReceiverOptions& options)
      : captured_(std::move(captured)),
        failpoints_(FailPoints::FromEnvironment("rank" + std::to_string(parallel.tp_rank))),
        stager_(std::move(model), parallel, quantization, captured_, options, failpoints_, report_),
        buffers_digest_(captured_.TableDigest()) {}

  void Stage(const ReloadSource& source, std::uint64_t attempt) {
    Start();
    // Failpoints are for reloads: the first load of an engine's own checkpoint passes them by.
    failpoints_.Suspend(!version_ && source.kind != ReloadSource::Kind::kPublisher);
    attempt_ = attempt != 0 ? attempt : attempt_ + 1;
    OrFail([&] { Hold(stager_.Stage(source, attempt_)); });
    report_.total_ms = MillisecondsSince(begin_);
  }

  void Prepare() {
    CheckStaged();
    if (prepared_) return;
    failpoints_.Hit("commit.prepare");
    captured_.CheckUnmoved();
    prepared_ = true;
  }

  void Commit() {
    Prepare();
    const auto begin = Clock::now();
    layercast::Commit(*staged_.layout, stager_.staging(), captured_, stager_.pool(), failpoints_);
    report_.stage_ms["commit"] = MillisecondsSince(begin);
    report_.total_ms = MillisecondsSince(begin_);
    report_.buffers_digest = captured_.TableDigest();
    version_ = staged_.manifest.version();
    committed_digest_ = staged_.digest;
    phase_ = Phase::kIdle;
  }

  void VerifyServed() {
    if (!version_) throw Error(ErrorCode::kFailedPrecondition, "nothing was committed yet that could be verified");
    const auto begin = Clock::now();
    report_.served_digest = captured_.ServedDigest();
    report_.stage_ms["verify"] += MillisecondsSince(begin);
    if (report_.served_digest == committed_digest_) return;
    throw Error(ErrorCode::kInternal, "the captured buffers do not hold what was committed: digest expected " +
                                          committed_digest_.ToHex() + ", read back " + report_.served_digest.ToHex());
  }

  void Abort() {
    stager_.Abandon();
    phase_ = Phase::kIdle;
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
    OrFail([&] { stager_.Begin(specs); });
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
    OrFail([&] { Hold(stager_.Finish()); });
    Commit();
    VerifyServed();
    return report_;
  }

  std::vector<std::byte> StagedManifest() const {
    CheckStaged();
    return staged_.manifest.Encode();
  }

  void AdoptStaged(const std::vector<std::byte>& encoded) {
    Start();
    OrFail([&] { Hold(stager_.Adopt(Manifest::Decode(encoded))); });
  }

  void SetChannel(std::string channel) { stager_.SetChannel(std::move(channel)); }
  void SetTimeout(std::chrono::milliseconds timeout) { stager_.SetTimeout(timeout); }
  const std::optional<Version>& version() const { return version_; }
  const ReloadReport& report() const { return report_; }
  const CapturedBuffers& captured() const { return captured_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kIdle, kReceiving, kStaged };

  static double MillisecondsSince(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  // Of a new reload: what was staged is dropped, what is being received is not.
  void Start() {
    if (phase_ == Phase::kReceiving) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "a layerwise reload is already active. Call finalize_layerwise_processing first.");
    }
    Abort();
    report_ = ReloadReport();
    for (const char* stage : kStages) report_.stage_ms[stage] = 0;  // also of those that this way leaves out
    report_.buffers_digest = buffers_digest_;
    begin_ = Clock::now();
  }

  void Hold(StagedVersion staged) {
    staged_ = std::move(staged);
    phase_ = Phase::kStaged;
    prepared_ = false;
  }

  void CheckStaged() const {
    if (phase_ == Phase::kStaged) return;
    throw Error(ErrorCode::kFailedPrecondition, "nothing is staged: stage a version before you commit it");
  }

  // Whatever is thrown ends the reload. The report keeps what had happened; the captured buffers were not touched.
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

  const CapturedBuffers captured_;
  FailPoints failpoints_;
  ReloadReport report_;
  Stager stager_;  // refers to those above
  const Digest buffers_digest_;

  Phase phase_ = Phase::kIdle;
  bool recorded_ = false;
  bool prepared_ = false;  // what is staged may be committed
  std::uint64_t attempt_ = 0;
  StagedVersion staged_;  // where phase_ says so
  Digest committed_digest_;
  std::optional<Version> version_;
  Clock::time_point begin_;
};

Receiver::Receiver(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
                   CapturedBuffers captured, const ReceiverOptions& options)
    : impl_(std::make_unique<Impl>(std::move(model), parallel, quantization, std::move(captured), options)) {}
Receiver::~Receiver() = default;

ReloadReport Receiver::ReloadWeights(ReloadSource source) {
  impl_->Stage(source, 0);
  impl_->Commit();
  impl_->VerifyServed();
  return impl_->report();
}

void Receiver::Stage(ReloadSource source, std::uint64_t attempt) { impl_->Stage(source, attempt); }
void Receiver::Prepare() { impl_->Prepare(); }
void Receiver::SetTimeout(std::chrono::milliseconds timeout) { impl_->SetTimeout(timeout); }
void Receiver::Commit() { impl_->Commit(); }
void Receiver::Abort() { impl_->Abort(); }
void Receiver::SetChannel(std::string channel) { impl_->SetChannel(std::move(channel)); }
void Receiver::VerifyServed() { impl_->VerifyServed(); }
void Receiver::record_metadata_for_reloading() { impl_->RecordMetadata(); }
void Receiver::initialize_layerwise_reload(std::vector<TensorSpec> specs) { impl_->Initialize(specs); }
std::set<std::string> Receiver::load_weights(WeightsIterator& weights) { return impl_->Load(weights); }
ReloadReport Receiver::finalize_layerwise_processing() { return impl_->Finalize(); }
const std::optional<Version>& Receiver::version() const { return impl_->version(); }
const ReloadReport& Receiver::report() const { return impl_->report(); }
const CapturedBuffers& Receiver::captured() const { return impl_->captured(); }
std::vector<std::byte> Receiver::StagedManifest() const { return impl_->StagedManifest(); }
void Receiver::AdoptStaged(const std::vector<std::byte>& manifest) { impl_->AdoptStaged(manifest); }

}  // namespace layercast
