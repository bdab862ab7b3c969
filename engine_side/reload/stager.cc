#include "engine_side/reload/stager.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "engine_side/reload/kernel_format.h"
#include "engine_side/reload/stage_clock.h"
#include "layercast/error.h"
#include "src/checkpoint/checkpoint.h"

namespace layercast {
namespace {

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

// Hands on what arrives, and says how much that was by now.
class Progress final : public FetchSink {
 public:
  using Say = std::function<void(std::uint64_t, std::uint64_t)>;
  Progress(FetchSink& sink, std::uint64_t total, const Say& say) : sink_(sink), total_(total), say_(say) {}

  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override {
    sink_.OnTensor(tensor, amax, digest);
  }
  void OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) override { sink_.OnAxisAmax(tensor, amax); }
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override {
    for (const RegionView& region : regions) bytes_ += region.num_bytes();
    if (say_) say_(bytes_, total_);
    sink_.OnChunk(chunk, regions);
  }

 private:
  FetchSink& sink_;
  const std::uint64_t total_;
  const Say& say_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Stager::Stager(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
               const CapturedBuffers& captured, const ReceiverOptions& options, FailPoints& failpoints,
               ReloadReport& report)
    : model_(std::move(model)),
      parallel_(parallel),
      recipe_(MakeRecipe(quantization.recipe, {.power_of_two_scales = quantization.power_of_two_scales})),
      captured_(captured),
      options_(options),
      failpoints_(failpoints),
      report_(report),
      channel_(options.channel),
      timeout_(options.timeout),
      pool_(options.threads),
      staging_memory_(options.staging_memory != nullptr ? *options.staging_memory : host_memory_),
      layer_memory_(options.layer_memory != nullptr ? *options.layer_memory : layer_cache_) {}

StagedVersion Stager::Stage(const ReloadSource& source, std::uint64_t attempt) {
  switch (source.kind) {
    case ReloadSource::Kind::kOrigin: return StageOrigin();
    case ReloadSource::Kind::kPath: return StagePath(source.location, source.is_checkpoint_format);
    case ReloadSource::Kind::kPublisher: return StagePublisher(source, attempt);
    case ReloadSource::Kind::kIterator: return StageIterator(source);
  }
  throw Error(ErrorCode::kInvalidArgument, "a source of no known kind");
}

void Stager::Begin(const std::vector<TensorSpec>& specs) {
  report_.channel = "iterator";
  report_.version.lineage = "iterator";
  BeginAttempt(ManifestOf("iterator", 0, OrLast(specs)), {});
}

std::set<std::string> Stager::Load(WeightsIterator& weights) {
  std::set<std::string> names;
  while (std::optional<NamedTensor> tensor = weights.Next()) {
    attempt_->Take(*tensor);
    names.insert(std::move(tensor->name));
  }
  return names;
}

StagedVersion Stager::Finish() { return FinishAttempt(std::nullopt); }

StagedVersion Stager::Adopt(Manifest manifest) {
  const std::shared_ptr<const PreparedLayout> prepared = Prepare(manifest);
  EnsureStaging(prepared->kernel);
  report_.version = manifest.version();
  report_.staged_bytes = prepared->kernel.staged_bytes();
  return Digested({prepared, &prepared->kernel}, std::move(manifest));
}

void Stager::Abandon() {
  if (attempt_ != nullptr) attempt_->Describe(report_);
  EndAttempt();
}

StagedVersion Stager::StageOrigin() {
  if (!origin_.path.empty()) return StagePath(Origin(origin_).path, origin_.is_checkpoint_format);
  throw Error(ErrorCode::kFailedPrecondition, "there is no checkpoint to re-read: none was loaded from a path");
}

StagedVersion Stager::StagePath(const std::string& path, bool is_checkpoint_format) {
  report_.channel = "path";
  report_.version.lineage = LineageOf(path);
  StagedVersion staged =
      is_checkpoint_format
          ? StageCheckpoint(path)
          : StageKernelFormat(*OpenKernelFormat(path, parallel_.tp_rank, parallel_.tp_size), LineageOf(path));
  origin_ = {path, is_checkpoint_format};
  return staged;
}

StagedVersion Stager::StageCheckpoint(const std::string& path) {
  const Checkpoint checkpoint = Checkpoint::Open(path);
  BeginAttempt(ManifestOf(LineageOf(path), 0, checkpoint.specs()), {.in_order = true, .snapshot = false});
  TakeAll(*checkpoint.Weights(LayerOrder(checkpoint.specs())));
  return FinishAttempt(std::nullopt);
}

StagedVersion Stager::StageIterator(const ReloadSource& source) {
  report_.channel = "iterator";
  report_.version.lineage = source.lineage;
  if (source.iterator == nullptr) throw Error(ErrorCode::kInvalidArgument, "expected an iterator, got null");
  if (!source.is_checkpoint_format) return StageKernelFormat(*source.iterator, source.lineage);
  BeginAttempt(ManifestOf(source.lineage, source.step.value_or(0), OrLast(source.specs)), {});
  TakeAll(*source.iterator);
  return FinishAttempt(std::nullopt);
}

StagedVersion Stager::StagePublisher(const ReloadSource& source, std::uint64_t attempt) {
  const Deadline deadline = Deadline::After(timeout_);
  const ReceiverIdentity self{
      .engine = options_.engine, .attempt = attempt, .rank = parallel_.tp_rank, .tp_size = parallel_.tp_size};
  std::unique_ptr<FetchSession> session =
      FetchSession::Open(source.location, self, source.lineage, source.step, HowToFetch(), failpoints_, deadline);
  report_.version = session->manifest().version();
  report_.channel = session->channel();
  const bool snapshot = session->mode() == PublishMode::kSnapshot;
  BeginAttempt(session->manifest(), {.in_order = snapshot, .snapshot = snapshot});
  Progress sink(*attempt_, attempt_->schedule().schedule.total_bytes(), options_.on_progress);
  try {
    session->Fetch(attempt_->schedule().schedule, attempt_->prepared().amax_requests, sink, deadline);
  } catch (const Error& error) {
    Describe(session->stats());
    const std::string what = error.what();  // the channel's own words name another address, or none
    if (what.find(source.location) != std::string::npos) throw;
    throw Error(error.code(), "publisher " + source.location + ": " + what);
  }
  Describe(session->stats());
  Manifest published = session->manifest();
  session.reset();  // with its receive slots
  return FinishAttempt(std::move(published));
}

FetchOptions Stager::HowToFetch() const {
  FetchOptions fetch;
  fetch.transports = transports_;
  fetch.channel = channel_;
  fetch.memory = &layer_memory_;
  fetch.peer_timeout = options_.peer_timeout;
  return fetch;
}

void Stager::Describe(const FetchStats& stats) {
  report_.stage_ms["receive"] = stats.receive_seconds * 1e3;
  report_.stage_ms["verify"] = stats.verify_seconds * 1e3;
  const double seconds = stats.receive_seconds + stats.verify_seconds;
  report_.gb_per_s = seconds > 0 ? static_cast<double>(stats.bytes) / 1e9 / seconds : 0;
}

StagedVersion Stager::StageKernelFormat(WeightsIterator& weights, const std::string& lineage) {
  const LoadPlan plan = LoadPlan::WithoutTensors(*model_);
  auto layout = std::make_shared<const KernelLayout>(plan, *recipe_, captured_);
  EnsureStaging(*layout);
  Manifest manifest = LoadKernelFormat(weights, lineage, *layout, *staging_, pool_);
  report_.version = manifest.version();
  report_.staged_bytes = layout->staged_bytes();
  report_.bytes = report_.bytes_total = manifest.total_bytes();
  report_.layers = plan.layers().size();
  return Digested(std::move(layout), std::move(manifest));
}

void Stager::BeginAttempt(Manifest manifest, Arrival arrival) {
  const std::shared_ptr<const PreparedLayout> prepared = Prepare(manifest);
  EnsureStaging(prepared->kernel);
  std::vector<TensorSpec> specs;
  for (const ManifestEntry& entry : manifest.entries()) specs.push_back(entry.spec);
  last_specs_ = std::move(specs);
  attempt_ = std::make_unique<ReloadAttempt>(ReloadAttempt::Environment{.model = *model_,
                                                                        .recipe = *recipe_,
                                                                        .staging = *staging_,
                                                                        .layer_memory = layer_memory_,
                                                                        .pool = pool_,
                                                                        .failpoints = failpoints_,
                                                                        .direct = options_.direct},
                                             prepared, std::move(manifest), arrival.in_order, arrival.snapshot);
}

void Stager::TakeAll(WeightsIterator& weights) {
  while (std::optional<NamedTensor> tensor = weights.Next()) attempt_->Take(*tensor);
}

// The attempt has everything: what it left in staging is whole.
StagedVersion Stager::FinishAttempt(std::optional<Manifest> published) {
  attempt_->Finish();
  attempt_->Describe(report_);
  Manifest manifest = published ? *std::move(published) : attempt_->FinalManifest();
  report_.version = manifest.version();
  EndAttempt();
  return Digested({prepared_, &prepared_->kernel}, std::move(manifest));
}

StagedVersion Stager::Digested(std::shared_ptr<const KernelLayout> layout, Manifest manifest) {
  const StageClock::Scope timing(report_.stage_ms["verify"]);
  const Digest digest = staging_->DigestOfAll(*layout);
  return {std::move(layout), std::move(manifest), digest};
}

void Stager::EndAttempt() {
  attempt_.reset();
  layer_cache_.Release();
}

// The plan of this layout of tensors: made at its first version, replayed for the rest.
std::shared_ptr<const PreparedLayout> Stager::Prepare(const Manifest& manifest) {
  if (prepared_ != nullptr && prepared_->plan.layout_digest() == manifest.layout_digest()) return prepared_;
  const StageClock::Scope timing(report_.stage_ms["plan"]);
  prepared_ = std::make_shared<const PreparedLayout>(*model_, manifest, *recipe_, captured_, options_.chunk_bytes);
  return prepared_;
}

// The plan's order, then what this rank keeps nothing of: its digest still belongs to the version's.
std::vector<std::uint32_t> Stager::LayerOrder(const std::vector<TensorSpec>& specs) const {
  std::vector<std::uint32_t> order;
  std::vector<bool> listed(specs.size());
  const auto list = [&](std::uint32_t tensor) {
    if (!listed[tensor]) order.push_back(tensor);
    listed[tensor] = true;
  };
  for (const Placement& placement : prepared_->plan.placements()) list(placement.tensor);
  for (std::uint32_t tensor = 0; tensor < listed.size(); ++tensor) list(tensor);
  return order;
}

const std::vector<TensorSpec>& Stager::OrLast(const std::vector<TensorSpec>& specs) const {
  if (!specs.empty()) return specs;
  if (!last_specs_.empty()) return last_specs_;
  throw Error(ErrorCode::kFailedPrecondition,
              "the first load from an iterator needs the specs of its tensors: plans are made before any byte moves");
}

void Stager::EnsureStaging(const KernelLayout& layout) {
  if (staging_ == nullptr) staging_ = std::make_unique<Staging>(layout, staging_memory_);
}

}  // namespace layercast
