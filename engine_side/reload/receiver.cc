#include "layercast/receiver.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "engine_side/reload/attempt.h"
#include "engine_side/reload/commit.h"
#include "engine_side/reload/kernel_format.h"
#include "layercast/error.h"
#include "src/base/log.h"
#include "src/checkpoint/checkpoint.h"

namespace layercast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kStages[] = {"receive",  "layer_buffer", "materialize", "fuse_and_shard",
                                   "quantize", "verify",       "commit"};

Manifest ManifestOf(const std::string& lineage, std::uint64_t step, const std::vector<TensorSpec>& specs) {
  std::vector<ManifestEntry> entries;
  for (const TensorSpec& spec : specs) entries.push_back({.spec = spec, .digest = {}, .amax = -1});
  return Manifest(lineage, step, std::move(entries));
}

// The folder's own name: what a version is called that came from no publisher.
std::string LineageOf(const std::string& path) {
  const std::filesystem::path clean = std::filesystem::weakly_canonical(path);
  return clean.filename().empty() ? clean.string() : clean.filename().string();
}

ReloadSource Make(ReloadSource::Kind kind, std::string location) {
  ReloadSource source;
  source.kind = kind;
  source.location = std::move(location);
  return source;
}

}  // namespace

ReloadSource FromOrigin() { return Make(ReloadSource::Kind::kOrigin, ""); }

ReloadSource FromPath(std::string path, bool is_checkpoint_format) {
  ReloadSource source = Make(ReloadSource::Kind::kPath, std::move(path));
  source.is_checkpoint_format = is_checkpoint_format;
  return source;
}

ReloadSource FromPublisher(std::string endpoint, std::string lineage, std::optional<std::uint64_t> step) {
  ReloadSource source = Make(ReloadSource::Kind::kPublisher, std::move(endpoint));
  source.lineage = std::move(lineage);
  source.step = step;
  return source;
}

ReloadSource FromIterator(std::unique_ptr<WeightsIterator> iterator, std::vector<TensorSpec> specs,
                          bool is_checkpoint_format) {
  ReloadSource source = Make(ReloadSource::Kind::kIterator, "");
  source.lineage = "iterator";
  source.iterator = std::move(iterator);
  source.specs = std::move(specs);
  source.is_checkpoint_format = is_checkpoint_format;
  return source;
}

class Receiver::Impl {
 public:
  Impl(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
       CapturedBuffers captured, const ReceiverOptions& options)
      : model_(std::move(model)),
        parallel_(parallel),
        recipe_(MakeRecipe(quantization.recipe, {.power_of_two_scales = quantization.power_of_two_scales})),
        captured_(std::move(captured)),
        options_(options),
        pool_(options.threads),
        failpoints_(FailPoints::FromEnvironment("rank" + std::to_string(parallel.tp_rank))),
        staging_memory_(options.staging_memory != nullptr ? *options.staging_memory : host_memory_),
        layer_memory_(options.layer_memory != nullptr ? *options.layer_memory : host_memory_) {
    buffers_digest_ = captured_.TableDigest();
  }

  void Stage(ReloadSource source, std::uint64_t attempt) {
    CheckNotReceiving();
    Abort();
    Start();
    attempt_number_ = attempt != 0 ? attempt : attempt_number_ + 1;
    try {
      StageFrom(std::move(source));
    } catch (...) {
      Fail();
      throw;
    }
    report_.total_ms = MillisecondsSince(begin_);
  }

  void Commit() {
    if (phase_ != Phase::kStaged) {
      throw Error(ErrorCode::kFailedPrecondition, "nothing is staged: stage a version before you commit it");
    }
    failpoints_.Hit("commit.prepare");
    const auto begin = Clock::now();
    layercast::Commit(*staged_layout_, *staging_, captured_, pool_, failpoints_);
    report_.stage_ms["commit"] = MillisecondsSince(begin);
    report_.total_ms = MillisecondsSince(begin_);
    report_.buffers_digest = captured_.TableDigest();
    version_ = staged_manifest_.version();
    committed_digest_ = staged_digest_;
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
    attempt_.reset();
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

  void Initialize(std::vector<TensorSpec> specs) {
    if (!recorded_) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "record_metadata_for_reloading must be called before initialize_layerwise_reload.");
    }
    CheckNotReceiving();
    Abort();
    Start();
    report_.channel = "iterator";
    BeginAttempt(ManifestOf("iterator", 0, specs.empty() ? LastSpecs() : specs), false, false);
    phase_ = Phase::kReceiving;
  }

  std::set<std::string> Load(WeightsIterator& weights) {
    if (phase_ != Phase::kReceiving) {
      throw Error(ErrorCode::kFailedPrecondition, "initialize_layerwise_reload must be called before load_weights.");
    }
    std::set<std::string> names;
    try {
      while (std::optional<NamedTensor> tensor = weights.Next()) {
        attempt_->Take(*tensor);
        names.insert(tensor->name);
      }
    } catch (...) {
      Fail();
      throw;
    }
    return names;
  }

  ReloadReport Finalize() {
    if (phase_ != Phase::kReceiving) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "finalize_layerwise_processing called without a matching initialize_layerwise_reload.");
    }
    try {
      Staged();
    } catch (...) {
      Fail();
      throw;
    }
    Commit();
    VerifyServed();
    return report_;
  }

  void SetChannel(std::string channel) { options_.channel = std::move(channel); }

  const std::optional<Version>& version() const { return version_; }
  const ReloadReport& report() const { return report_; }
  const CapturedBuffers& captured() const { return captured_; }

  std::vector<std::byte> StagedManifest() const {
    if (phase_ != Phase::kStaged) throw Error(ErrorCode::kFailedPrecondition, "nothing is staged: it has no manifest");
    return staged_manifest_.Encode();
  }

  void AdoptStaged(const std::vector<std::byte>& encoded) {
    CheckNotReceiving();
    Abort();
    Start();
    staged_manifest_ = Manifest::Decode(encoded);
    const auto prepared = Prepare(staged_manifest_);
    EnsureStaging(prepared->kernel);
    staged_layout_ = std::shared_ptr<const KernelLayout>(prepared, &prepared->kernel);
    staged_digest_ = staging_->DigestOfAll(*staged_layout_);
    phase_ = Phase::kStaged;
  }

 private:
  enum class Phase { kIdle, kReceiving, kStaged };

  void CheckNotReceiving() const {
    if (phase_ != Phase::kReceiving) return;
    throw Error(ErrorCode::kFailedPrecondition,
                "a layerwise reload is already active. Call finalize_layerwise_processing first.");
  }

  static double MillisecondsSince(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  void Start() {
    report_ = ReloadReport();
    for (const char* stage : kStages) report_.stage_ms[stage] = 0;  // also of those that this way leaves out
    begin_ = Clock::now();
    report_.buffers_digest = buffers_digest_;
  }

  // The report keeps what had happened; the captured buffers were not touched.
  void Fail() {
    if (attempt_ != nullptr) attempt_->Describe(report_);
    report_.total_ms = MillisecondsSince(begin_);
    Abort();
  }

  void StageFrom(ReloadSource source) {
    switch (source.kind) {
      case ReloadSource::Kind::kOrigin:
        if (origin_.location.empty()) {
          throw Error(ErrorCode::kFailedPrecondition, "there is no checkpoint to re-read: none was loaded from a path");
        }
        return StagePath(origin_.location, origin_.is_checkpoint_format);
      case ReloadSource::Kind::kPath: return StagePath(source.location, source.is_checkpoint_format);
      case ReloadSource::Kind::kPublisher: return StagePublisher(source);
      case ReloadSource::Kind::kIterator: return StageIterator(source);
    }
  }

  void StagePath(const std::string& path, bool is_checkpoint_format) {
    report_.channel = "path";
    report_.version.lineage = LineageOf(path);
    if (!is_checkpoint_format) {
      StageKernelFormat(*OpenKernelFormat(path, parallel_.tp_rank, parallel_.tp_size), LineageOf(path));
    } else {
      const Checkpoint checkpoint = Checkpoint::Open(path);
      BeginAttempt(ManifestOf(LineageOf(path), 0, checkpoint.specs()), true, false);
      const auto weights = checkpoint.Weights(LayerOrder(checkpoint));
      while (std::optional<NamedTensor> tensor = weights->Next()) attempt_->Take(*tensor);
      Staged();
    }
    origin_.location = path;
    origin_.is_checkpoint_format = is_checkpoint_format;
  }

  // The plan's order, then what this rank keeps nothing of: its digest still belongs to the version's.
  std::vector<std::uint32_t> LayerOrder(const Checkpoint& checkpoint) const {
    std::vector<std::uint32_t> order;
    std::vector<bool> listed(checkpoint.specs().size());
    const auto list = [&](std::uint32_t tensor) {
      if (!listed[tensor]) order.push_back(tensor);
      listed[tensor] = true;
    };
    for (const Placement& placement : attempt_->prepared().plan.placements()) list(placement.tensor);
    for (std::uint32_t tensor = 0; tensor < listed.size(); ++tensor) list(tensor);
    return order;
  }

  void StageIterator(const ReloadSource& source) {
    report_.channel = "iterator";
    report_.version.lineage = source.lineage;
    if (!source.is_checkpoint_format) return StageKernelFormat(*source.iterator, source.lineage);
    const std::vector<TensorSpec>& specs = source.specs.empty() ? LastSpecs() : source.specs;
    BeginAttempt(ManifestOf(source.lineage, source.step.value_or(0), specs), false, false);
    while (std::optional<NamedTensor> tensor = source.iterator->Next()) attempt_->Take(*tensor);
    Staged();
  }

  void StagePublisher(const ReloadSource& source) {
    const Deadline deadline = Deadline::After(options_.timeout);
    const ReceiverIdentity self{
        .engine = options_.engine, .attempt = attempt_number_, .rank = parallel_.tp_rank, .tp_size = parallel_.tp_size};
    FetchOptions fetch;
    fetch.transports = transports_;
    fetch.channel = options_.channel;
    fetch.memory = &layer_memory_;
    fetch.peer_timeout = options_.peer_timeout;
    const std::unique_ptr<FetchSession> session =
        FetchSession::Open(source.location, self, source.lineage, source.step, fetch, failpoints_, deadline);
    report_.version = session->manifest().version();
    report_.channel = session->channel();
    const bool snapshot = session->mode() == PublishMode::kSnapshot;
    BeginAttempt(session->manifest(), snapshot, snapshot);
    try {
      session->Fetch(attempt_->schedule().schedule, attempt_->prepared().row_amax_tensors, *attempt_, deadline);
    } catch (...) {
      Describe(session->stats());
      throw;
    }
    Describe(session->stats());
    Staged(session->manifest());
  }

  void Describe(const FetchStats& stats) {
    report_.stage_ms["receive"] = stats.receive_seconds * 1e3;
    report_.stage_ms["verify"] = stats.verify_seconds * 1e3;
    const double seconds = stats.receive_seconds + stats.verify_seconds;
    report_.gb_per_s = seconds > 0 ? static_cast<double>(stats.bytes) / 1e9 / seconds : 0;
  }

  void StageKernelFormat(WeightsIterator& weights, const std::string& lineage) {
    const LoadPlan plan = LoadPlan::WithoutTensors(*model_);
    auto layout = std::make_shared<const KernelLayout>(plan, *recipe_, captured_);
    EnsureStaging(*layout);
    staged_manifest_ = LoadKernelFormat(weights, lineage, *layout, *staging_, pool_);
    report_.version = staged_manifest_.version();
    report_.staged_bytes = layout->staged_bytes();
    report_.bytes = report_.bytes_total = staged_manifest_.total_bytes();
    report_.layers = plan.layers().size();
    staged_layout_ = std::move(layout);
    staged_digest_ = staging_->DigestOfAll(*staged_layout_);
    phase_ = Phase::kStaged;
  }

  void BeginAttempt(Manifest manifest, bool in_order, bool snapshot) {
    const auto prepared = Prepare(manifest);
    EnsureStaging(prepared->kernel);
    last_specs_.clear();
    for (const ManifestEntry& entry : manifest.entries()) last_specs_.push_back(entry.spec);
    attempt_ = std::make_unique<ReloadAttempt>(ReloadAttempt::Environment{.model = *model_,
                                                                          .recipe = *recipe_,
                                                                          .staging = *staging_,
                                                                          .layer_memory = layer_memory_,
                                                                          .pool = pool_,
                                                                          .failpoints = failpoints_,
                                                                          .direct = options_.direct},
                                               prepared, std::move(manifest), in_order, snapshot);
  }

  // The plan of this layout of tensors: made at its first version, replayed for the rest.
  std::shared_ptr<const PreparedLayout> Prepare(const Manifest& manifest) {
    if (prepared_ != nullptr && prepared_->plan.layout_digest() == manifest.layout_digest()) return prepared_;
    const auto begin = Clock::now();
    prepared_ = std::make_shared<const PreparedLayout>(*model_, manifest, *recipe_, captured_, options_.chunk_bytes);
    report_.stage_ms["plan"] = MillisecondsSince(begin);
    return prepared_;
  }

  void EnsureStaging(const KernelLayout& layout) {
    if (staging_ == nullptr) staging_ = std::make_unique<Staging>(layout, staging_memory_);
  }

  const std::vector<TensorSpec>& LastSpecs() const {
    if (!last_specs_.empty()) return last_specs_;
    throw Error(ErrorCode::kFailedPrecondition,
                "the first load from an iterator needs the specs of its tensors: plans are made before any byte moves");
  }

  // The attempt has everything: what it left in staging is whole.
  void Staged() { Staged(std::nullopt); }
  void Staged(const std::optional<Manifest>& published) {
    attempt_->Finish();
    attempt_->Describe(report_);
    staged_manifest_ = published ? *published : attempt_->FinalManifest();
    report_.version = staged_manifest_.version();
    const PreparedLayout& prepared = attempt_->prepared();
    staged_layout_ = std::shared_ptr<const KernelLayout>(prepared_, &prepared.kernel);
    const auto begin = Clock::now();
    staged_digest_ = staging_->DigestOfAll(*staged_layout_);
    report_.stage_ms["verify"] += MillisecondsSince(begin);
    attempt_.reset();
    phase_ = Phase::kStaged;
  }

  const std::unique_ptr<Module> model_;
  const ParallelConfig parallel_;
  const std::unique_ptr<const Recipe> recipe_;
  const CapturedBuffers captured_;
  ReceiverOptions options_;
  WorkerPool pool_;
  FailPoints failpoints_;
  HostMemory host_memory_;
  MemoryResource& staging_memory_;
  MemoryResource& layer_memory_;
  const std::vector<std::unique_ptr<Transport>> transports_ = AllTransports();
  Digest buffers_digest_;

  Phase phase_ = Phase::kIdle;
  bool recorded_ = false;
  std::uint64_t attempt_number_ = 0;
  struct Origin {
    std::string location;
    bool is_checkpoint_format = true;
  } origin_;
  std::vector<TensorSpec> last_specs_;
  std::shared_ptr<const PreparedLayout> prepared_;  // the second owner is an attempt, or what is staged
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<ReloadAttempt> attempt_;

  Manifest staged_manifest_;
  std::shared_ptr<const KernelLayout> staged_layout_;  // part of prepared_, or of its own
  Digest staged_digest_;
  Digest committed_digest_;
  std::optional<Version> version_;
  ReloadReport report_;
  Clock::time_point begin_;
};

Receiver::Receiver(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
                   CapturedBuffers captured, const ReceiverOptions& options)
    : impl_(std::make_unique<Impl>(std::move(model), parallel, quantization, std::move(captured), options)) {}
Receiver::~Receiver() = default;

ReloadReport Receiver::ReloadWeights(ReloadSource source) {
  impl_->Stage(std::move(source), 0);
  impl_->Commit();
  impl_->VerifyServed();
  return impl_->report();
}

void Receiver::Stage(ReloadSource source, std::uint64_t attempt) { impl_->Stage(std::move(source), attempt); }
void Receiver::Commit() { impl_->Commit(); }
void Receiver::Abort() { impl_->Abort(); }
void Receiver::SetChannel(std::string channel) { impl_->SetChannel(std::move(channel)); }
void Receiver::VerifyServed() { impl_->VerifyServed(); }
void Receiver::record_metadata_for_reloading() { impl_->RecordMetadata(); }
void Receiver::initialize_layerwise_reload(std::vector<TensorSpec> specs) { impl_->Initialize(std::move(specs)); }
std::set<std::string> Receiver::load_weights(WeightsIterator& weights) { return impl_->Load(weights); }
ReloadReport Receiver::finalize_layerwise_processing() { return impl_->Finalize(); }
const std::optional<Version>& Receiver::version() const { return impl_->version(); }
const ReloadReport& Receiver::report() const { return impl_->report(); }
const CapturedBuffers& Receiver::captured() const { return impl_->captured(); }
std::vector<std::byte> Receiver::StagedManifest() const { return impl_->StagedManifest(); }
void Receiver::AdoptStaged(const std::vector<std::byte>& manifest) { impl_->AdoptStaged(manifest); }

}  // namespace layercast
