#include "engine_side/reload/receive/stager.h"

#include <algorithm>
#include <utility>

#include "engine_side/plan/kept_layers.h"
#include "engine_side/reload/pipeline/stage_clock.h"
#include "engine_side/reload/prequantized/quantized_layers.h"
#include "layercast/error.h"
#include "src/base/naming_source.h"
#include "src/base/stop_check.h"
#include "src/transport/all/transports.h"

namespace layercast {
namespace {

// The size of a pinned block: a chunk fits into one, whatever the size of its elements.
std::size_t BlockBytes(std::uint64_t chunk_bytes) {
  constexpr std::uint64_t kLeast = 4096;
  return static_cast<std::size_t>(std::max(chunk_bytes, kLeast));
}

// Names the device explicitly: the host program may reload on any of its threads, whatever device is current there.
std::vector<std::unique_ptr<Transport>> TransportsFor(const DeviceStream* stream) {
  return AllTransports(stream == nullptr ? std::nullopt : std::optional(stream->device().index));
}

}  // namespace

Stager::Stager(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
               const CapturedBuffers& captured, const ReceiverOptions& options, FailPoints& failpoints,
               ReloadReport& report, std::vector<std::unique_ptr<Transport>> transports)
    : model_(std::move(model)),
      parallel_(parallel),
      quantization_(quantization),
      recipes_(quantization.recipe, {.power_of_two_scales = quantization.power_of_two_scales}),
      captured_(captured),
      options_(options),
      failpoints_(failpoints),
      report_(report),
      pool_(options.threads),
      kept_memory_(options.staging_memory != nullptr ? *options.staging_memory : host_memory_),
      layer_memory_(options.layer_memory != nullptr ? *options.layer_memory : layer_cache_),
      stream_(captured.OpenStream()),
      device_work_(stream_ == nullptr ? nullptr
                                      : std::make_unique<DeviceWork>(*stream_, pool_, BlockBytes(options.chunk_bytes))),
      progress_(options.on_progress),
      peers_({.options = options_,
              .parallel = parallel_,
              .pool = pool_,
              .memory = layer_memory_,
              .device = device_work_ ? &device_work_->chunks() : nullptr,
              .failpoints = failpoints_,
              .report = report_,
              .say_progress = [this](std::uint64_t bytes) { NoteCame(bytes); }},
             transports.empty() ? TransportsFor(stream_.get()) : std::move(transports)) {}

// A device may still be at work on memory that goes now.
Stager::~Stager() { work().Drop(); }

StageWork& Stager::work() {
  if (device_work_) return *device_work_;
  return host_work_;
}

void Stager::Open(ReloadSource source, std::uint64_t attempt, const Origin& origin, std::stop_token stop) {
  source_ = std::move(source);
  attempt_number_ = attempt;
  stop_ = std::move(stop);
  progress_.Begin();
  ThrowIfStopped(stop_, "attempt " + std::to_string(attempt));
  switch (source_.kind) {
    case ReloadSource::Kind::kOrigin: return OpenOrigin(origin);
    case ReloadSource::Kind::kPath: return OpenPath(source_.checkpoint, source_.is_checkpoint_format);
    case ReloadSource::Kind::kPublisher: return OpenPublisher();
    case ReloadSource::Kind::kEngine: return OpenEngine();
    case ReloadSource::Kind::kIterator: return OpenIterator();
    case ReloadSource::Kind::kDummy: return OpenDummy();
  }
  throw Error(ErrorCode::kInvalidArgument, "a source of no known kind");
}

StagedVersion Stager::Receive() {
  ThrowIfStopped(stop_, "attempt " + std::to_string(attempt_number_));
  EnterStage("receive");
  StagedVersion staged = receive_();
  if (staged_record_) staged_record_->Note(staged.version, staged.digest);
  Abandon();
  return staged;
}

void Stager::Begin(const std::vector<TensorSpec>& specs) {
  report_.channel = "iterator";
  report_.version.lineage = "iterator";
  stop_ = {};
  progress_.Begin();
  BeginAttempt(ManifestOf("iterator", 0, specs), {});
  EnterStage("receive");
  receive_ = [this] { return FinishAttempt(std::nullopt); };
}

std::set<std::string> Stager::Load(WeightsIterator& weights) {
  std::set<std::string> names;
  while (std::optional<NamedTensor> tensor = weights.Next()) {
    attempt_->Take(*tensor);
    NoteCame(0);
    names.insert(std::move(tensor->name));
  }
  return names;
}

StagedVersion Stager::Adopt(const Version& version) {
  if (device_work_) {
    throw Error(ErrorCode::kUnsupported, "what was staged on a device is gone with the process that staged it");
  }
  progress_.Begin();
  committer().Begin();  // forgets digests: they are made anew from the bytes that lie there
  report_.version = version;
  report_.staged_bytes = layout().staged_bytes();
  const Digest expected = staged_record_->Find(version);
  StagedVersion staged = Digested(version);
  if (staged.digest == expected) return staged;
  throw Error(ErrorCode::kCorrupt, "the staging memory does not hold " + version.ToString() +
                                       " as it was staged: digest expected " + expected.ToHex() + ", got " +
                                       staged.digest.ToHex());
}

LayerSink& Stager::BeginWriting() {
  LayerSink& sink = committer().Begin();
  if (staged_record_) staged_record_->Clear();
  return sink;
}

void Stager::Abandon() {
  if (attempt_ != nullptr) attempt_->Describe(report_);
  attempt_.reset();
  peers_.Close();
  receive_ = nullptr;
  source_ = ReloadSource();
  work().Drop();
  if (committer_ != nullptr) committer_->Drop();
  layer_cache_.Release();
}

// Before anything is written, and after the plan: what does not fit is named tensor by tensor.
void Stager::CheckConfigs(std::span<const SourceConfig> configs) {
  const ServedConfig* const served = model_->config().get();
  report_.config_compared =
      served != nullptr && std::ranges::any_of(configs, [](const SourceConfig& of) { return !of.text.empty(); });
  if (std::ranges::equal(configs, agreed_configs_, SaySame)) return;
  report_.config_changes = ConfigChanges(served, configs);
  if (report_.config_changes.empty()) agreed_configs_.assign(configs.begin(), configs.end());
  if (!source_.allow_config_change) RefuseConfigChanges(report_.config_changes);
}

void Stager::BeginAttempt(Manifest manifest, const Arrival& arrival, std::vector<SourceConfig> configs,
                          HeldParts parts) {
  EnterStage("plan");
  std::shared_ptr<const PreparedLayout> prepared = NamingSource(arrival.from, [&] {
    std::shared_ptr<const PreparedLayout> planned = Prepare(manifest, std::move(parts));
    CheckMayKeep(planned->plan, source_.may_keep);
    return planned;
  });
  CheckConfigs(configs);
  BeginPrepared(std::move(prepared), std::move(manifest), arrival);
}

void Stager::BeginPrepared(std::shared_ptr<const PreparedLayout> prepared, Manifest manifest, const Arrival& arrival) {
  report_.staged_bytes = layout().staged_bytes();
  attempt_ = std::make_unique<ReloadAttempt>(ReloadAttempt::Environment{.model = *model_,
                                                                        .recipes = recipes_,
                                                                        .sink = BeginWriting(),
                                                                        .work = work(),
                                                                        .pool = pool_,
                                                                        .failpoints = failpoints_,
                                                                        .direct = options_.direct,
                                                                        .buffer_limit = options_.buffer_limit},
                                             std::move(prepared), std::move(manifest), arrival);
  progress_.Expect(attempt_->schedule().schedule.total_bytes(), attempt_->layers_awaited());
}

// To be called when the attempt has everything, so that the committer holds a whole version.
StagedVersion Stager::FinishAttempt(std::optional<Version> published) {
  attempt_->Finish();
  NoteCame(0);
  attempt_->Describe(report_);
  if (!source_.partial) last_layout_ = attempt_->manifest().layout();
  if (published) {
    report_.version = *std::move(published);
  } else {
    report_.version = attempt_->FinalManifest().version();
  }
  return Digested(report_.version);
}

StagedVersion Stager::Digested(const Version& version) {
  const StageClock::Scope timing(report_.stage_ms["verify"]);
  EnterStage("verify");
  return {version, committer().digest()};
}

LoadPlan Stager::FullPrecisionPlan() const {
  TakeInFullPrecision(*model_);
  return LoadPlan::WithoutTensors(*model_);
}

const KernelLayout& Stager::layout() {
  if (!layout_) {
    layout_.emplace(FullPrecisionPlan(), recipes_, captured_, quantization_.layout);
  }
  return *layout_;
}

Committer& Stager::committer() {
  if (committer_ == nullptr) {
    std::unique_ptr<Committer> made = MakeCommitter(options_.commit, {.layout = layout(),
                                                                      .kept_memory = kept_memory_,
                                                                      .layer_memory = layer_memory_,
                                                                      .pool = pool_,
                                                                      .failpoints = failpoints_,
                                                                      .device = device_work_.get()});
    if (options_.commit == CommitPolicy::kStaged && !device_work_) staged_record_.emplace(layout(), kept_memory_);
    committer_ = std::move(made);  // with its record, or neither
  }
  return *committer_;
}

// The plan for this layout of tensors and parts. It is made for the first version that has the layout, and replayed for
// the others.
std::shared_ptr<const PreparedLayout> Stager::Prepare(const Manifest& manifest, HeldParts parts) {
  const bool same = prepared_ != nullptr && prepared_->plan.layout_digest() == manifest.layout_digest() &&
                    prepared_->plan.parts() == parts && prepared_->plan.partial() == source_.partial;
  if (same) return prepared_;
  const StageClock::Scope timing(report_.stage_ms["plan"]);
  const KernelLayout& kernel = layout();  // before TakeQuantizedLayersAsTheyCome changes the model's form
  TakeQuantizedLayersAsTheyCome(*model_, manifest, quantization_);
  prepared_ =
      std::make_shared<const PreparedLayout>(LoadPlan::Build(*model_, manifest, source_.partial, std::move(parts)),
                                             manifest, kernel, recipes_, options_.chunk_bytes);
  return prepared_;
}

// The order in which tensors are read: the plan's, one group of layers after another. Tensors of which this rank keeps
// nothing come last; they are read because their digests are part of the version's.
std::vector<std::uint32_t> Stager::LayerOrder(const std::vector<TensorSpec>& specs) const {
  std::vector<std::uint32_t> order;
  std::vector<bool> listed(specs.size());
  const auto list = [&](std::uint32_t tensor) {
    if (!listed[tensor]) order.push_back(tensor);
    listed[tensor] = true;
  };
  const LoadPlan& plan = prepared_->plan;
  std::vector<PlannedLayer> layers = plan.layers();
  std::ranges::stable_sort(layers, {}, &PlannedLayer::group);
  for (const PlannedLayer& layer : layers) {
    for (const Placement& placement : plan.PlacementsInto(layer)) list(placement.tensor);
  }
  for (std::uint32_t tensor = 0; tensor < listed.size(); ++tensor) list(tensor);
  return order;
}

Manifest Stager::ManifestOf(const std::string& lineage, std::uint64_t step, std::span<const TensorSpec> specs) const {
  if (!specs.empty()) return Manifest::OfSpecs(lineage, step, specs, last_layout_);
  if (last_layout_ != nullptr) {
    return {lineage, step, last_layout_, std::vector<TensorSummary>(last_layout_->tensors().size())};
  }
  throw Error(ErrorCode::kFailedPrecondition,
              "the first load from an iterator needs the specs of its tensors: plans are made before any byte moves");
}

}  // namespace layercast
