#include "engine_side/reload/receive/stager.h"

#include <algorithm>
#include <utility>

#include "engine_side/plan/kept_layers.h"
#include "engine_side/reload/layout/served_digest.h"
#include "engine_side/reload/prequantized/quantized_layers.h"
#include "engine_side/reload/sources/kernel_taker.h"
#include "layercast/error.h"
#include "src/base/naming_source.h"
#include "src/base/stop_check.h"
#include "src/noise/fnv.h"
#include "src/transport/all/transports.h"

namespace layercast {
namespace {

// The size of a pinned block: a chunk fits into one, whatever the size of its elements.
std::size_t BlockBytes(std::uint64_t chunk_bytes) {
  constexpr std::uint64_t kLeast = 4096;
  return static_cast<std::size_t>(std::max(chunk_bytes, kLeast));
}

// Names the device explicitly: the host program may reload on any of its threads, whatever device is current there.
std::vector<std::unique_ptr<Transport>> TransportsFor(const DeviceStream* stream, const Keys& keys) {
  return AllTransports(stream == nullptr ? std::nullopt : std::optional(stream->device().index), keys);
}

// Everything that decides which slices a rank takes, in words.
std::string RankText(const ParallelConfig& parallel) {
  const auto rank_of = [](const char* name, int rank, int size) {
    return name + std::to_string(rank) + " of " + std::to_string(size);
  };
  std::string text = rank_of("tp_rank ", parallel.tp_rank, parallel.tp_size) +
                     rank_of(", pp_rank ", parallel.pp_rank, parallel.pp_size);
  if (parallel.ep_size > 1) {
    text += rank_of(", ep_rank ", parallel.ep_rank, parallel.ep_size) + ", experts " +
            std::string(ExpertPlacementName(parallel.expert_placement));
  }
  for (const std::int64_t layers : parallel.pp_layer_partition) text += ", a stage of " + std::to_string(layers);
  return text;
}

}  // namespace

std::unique_ptr<Module> GivenTree(std::unique_ptr<Module> model, const ParallelConfig& parallel) {
  if (model == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "a receiver needs the module tree of its rank, got none");
  }
  // Otherwise every rank of an engine would take the same slices, into buffers that fit them.
  if (const auto& of_tree = model->parallel(); of_tree && RankText(*of_tree) != RankText(parallel)) {
    throw Error(ErrorCode::kInvalidArgument, "a receiver needs the module tree of its rank: expected one of " +
                                                 RankText(parallel) + ", got one of " + RankText(*of_tree));
  }
  return model;
}

void ExpectMayBePartial(const ReloadSource& source, bool serves) {
  if (source.from->form() != VersionSource::Form::kCheckpoint) {
    throw Error(ErrorCode::kInvalidArgument, "a partial version: expected tensors of a checkpoint, got kernel tensors");
  }
  if (serves) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "a partial version keeps what is served of the layers that it leaves out: expected a whole version to be "
              "served, got none");
}

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
      keys_(Keys::From(options.keys)),
      peers_({.options = options_,
              .keys = keys_,
              .parallel = parallel_,
              .pool = pool_,
              .memory = layer_memory_,
              .device = device_work_ ? &device_work_->chunks() : nullptr,
              .failpoints = failpoints_,
              .report = report_},
             transports.empty() ? TransportsFor(stream_.get(), keys_) : std::move(transports)),
      context_{.model = *model_,
               .parallel = parallel_,
               .quantization = quantization_,
               .recipes = recipes_,
               .options = options_,
               .layer_memory = layer_memory_,
               .pool = pool_,
               .peers = peers_,
               .progress = progress_,
               .report = report_,
               .request = request_} {}

// A device may still be at work on memory that goes now.
Stager::~Stager() { work().Drop(); }

StageWork& Stager::work() {
  if (device_work_) return *device_work_;
  return host_work_;
}

void Stager::ExpectVouchedFor(const ReloadSource& source) const {
  if (keys_.may_be_unsigned() || source.from->is_vouched_for()) return;
  throw Error(
      ErrorCode::kPermissionDenied,
      "nobody signs what comes from a path, a store or another engine, and this engine takes what is signed by " +
          keys_.trusted()->source() + " (--trust) alone: expected a publisher that signs, or --allow-unsigned");
}

void Stager::Open(ReloadSource source, std::uint64_t attempt, const ServedVersion& served, std::stop_token stop) {
  request_ = std::move(source);
  context_.layout = &layout();
  context_.origin = served.origin();
  context_.base = served.source();
  context_.attempt = attempt;
  context_.stop = std::move(stop);
  progress_.Begin();
  ThrowIfStopped(context_.stop, "attempt " + std::to_string(attempt));
  BeginAttempt(request_.from->Open(context_));
}

StagedVersion Stager::Receive() {
  ThrowIfStopped(context_.stop, "attempt " + std::to_string(context_.attempt));
  EnterStage("receive");
  request_.from->Receive(context_, attempt_->wanted());
  StagedVersion staged = FinishAttempt();
  request_.from->Check(staged.digest, staged.clean);
  if (staged_record_) staged_record_->Note(staged.version, staged.digest);
  Abandon();
  return staged;
}

void Stager::Begin(const std::vector<TensorSpec>& specs) {
  Open(FromIterator(MakeWeightsIterator(std::vector<NamedTensor>()), specs), 0, ServedVersion());
  loading_ = MakeTaker(form(), context_, attempt_->wanted());
  EnterStage("receive");
}

std::set<std::string> Stager::Load(WeightsIterator& weights) {
  std::set<std::string> names;
  while (std::optional<NamedTensor> tensor = weights.Next()) {
    loading_->Take(*tensor);
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
  report_.noise = noise().staged();
  const Digest expected = staged_record_->Find(version);
  StagedVersion staged = Digested(version);
  if (staged.digest == expected) return staged;
  throw Error(ErrorCode::kCorrupt, "the staging memory does not hold " + version.ToString() +
                                       " as it was staged: digest expected " + expected.ToHex() + ", got " +
                                       staged.digest.ToHex());
}

// As the request says, else as the version says and the engine wants it.
std::optional<Noise> Stager::NoiseFor(const Manifest& manifest) const {
  std::optional<Noise> noise = request_.noise ? request_.noise : manifest.noise();
  if (!noise || noise->sigma == 0) return std::nullopt;
  if (request_.noise) return noise;
  if (options_.noise == NoiseUse::kOff) return std::nullopt;
  if (options_.noise == NoiseUse::kPerEngine) noise->own = Fnv1a(options_.engine);
  return noise;
}

LayerSink& Stager::BeginWriting() {
  LayerSink& sink = committer().Begin();
  if (staged_record_) staged_record_->Clear();
  return sink;
}

void Stager::Abandon() {
  if (attempt_ != nullptr) attempt_->Describe(report_);
  loading_.reset();
  attempt_.reset();
  peers_.Close();
  request_ = ReloadSource(nullptr);
  context_.base.reset();
  work().Drop();
  if (committer_ != nullptr) committer_->Drop();
  layer_cache_.Release();
}

void Stager::ReleaseMemory() {
  committer_.reset();
  staged_record_.reset();
  peers_.ForgetPeers();
  if (device_work_) device_work_->ReleaseMemory();
}

// Before anything is written, and after the plan: what does not fit is named tensor by tensor.
void Stager::CheckConfigs(std::span<const SourceConfig> configs) {
  const ServedConfig* const served = model_->config().get();
  report_.config_compared =
      served != nullptr && std::ranges::any_of(configs, [](const SourceConfig& of) { return !of.text.empty(); });
  if (std::ranges::equal(configs, agreed_configs_, SaySame)) return;
  report_.config_changes = ConfigChanges(served, configs);
  if (report_.config_changes.empty()) agreed_configs_.assign(configs.begin(), configs.end());
  if (!request_.allow_config_change) RefuseConfigChanges(report_.config_changes);
}

void Stager::BeginAttempt(Opened opened) {
  std::shared_ptr<const PreparedLayout> prepared = NamingSource(opened.from, [&] { return Prepare(opened); });
  CheckConfigs(opened.configs);
  report_.staged_bytes = layout().staged_bytes();
  report_.noise = NoiseFor(opened.manifest);
  version_ = std::move(opened.version);
  origin_ = std::move(opened.origin);
  // Nothing is made of kernel tensors, so their order does not matter.
  const bool direct = form() == VersionSource::Form::kKernel || (opened.in_order && options_.direct);
  LayerSink& sink = BeginWriting();
  noise().Begin(report_.noise);
  attempt_ = std::make_unique<ReloadAttempt>(ReloadAttempt::Environment{.recipes = recipes_,
                                                                        .sink = sink,
                                                                        .work = work(),
                                                                        .pool = pool_,
                                                                        .failpoints = failpoints_,
                                                                        .buffer_limit = options_.buffer_limit,
                                                                        .say_came = [this] { NoteCame(); },
                                                                        .stop = context_.stop,
                                                                        .noise = &noise(),
                                                                        .trace = options_.trace},
                                             std::move(prepared), std::move(opened.manifest), opened.snapshot, direct);
  progress_.Expect(attempt_->bytes_awaited(), attempt_->layers_awaited());
}

// To be called when the attempt has everything, so that the committer holds a whole version.
StagedVersion Stager::FinishAttempt() {
  attempt_->Finish();
  noise().Finish();
  NoteCame();
  attempt_->Describe(report_);
  if (!request_.partial && form() != VersionSource::Form::kKernel) {
    context_.last_layout = attempt_->manifest().layout();
  }
  report_.version = version_ ? *version_ : attempt_->FinalManifest().version();
  StagedVersion staged = Digested(report_.version);
  staged.origin = origin_;
  staged.source = peers_.source();
  return staged;
}

void Stager::NoteCame() { progress_.Came(attempt_->bytes(), attempt_->layers()); }

StagedVersion Stager::Digested(const Version& version) {
  const StageClock::Scope timing(AccountOf("verify"));
  EnterStage("verify");
  std::vector<Digest> digests = committer().digests();
  const Digest staged = CombineDigests(layout(), digests);
  noise().PutCleanDigests(digests);
  return {.version = version, .digest = staged, .clean = CombineDigests(layout(), digests)};
}

const KernelLayout& Stager::layout() {
  if (!layout_) {
    TakeInFullPrecision(*model_);
    layout_.emplace(LoadPlan::WithoutTensors(*model_), recipes_, captured_, quantization_.layout);
  }
  return *layout_;
}

NormNoise& Stager::noise() {
  if (!noise_) noise_.emplace(*model_, layout(), options_.norm_memory, host_memory_);
  return *noise_;
}

Committer& Stager::committer() {
  if (committer_ == nullptr) {
    std::unique_ptr<Committer> made = MakeCommitter(options_.commit, {.layout = layout(),
                                                                      .kept_memory = kept_memory_,
                                                                      .layer_memory = layer_memory_,
                                                                      .pool = pool_,
                                                                      .failpoints = failpoints_,
                                                                      .device = device_work_.get()});
    if (!WritesLayers(options_.commit) && !device_work_) staged_record_.emplace(layout(), kept_memory_);
    committer_ = std::move(made);  // with its record, or neither
  }
  return *committer_;
}

std::shared_ptr<const PreparedLayout> Stager::Prepare(Opened& opened) {
  if (form() != VersionSource::Form::kCheckpoint) return PrepareWhole(opened.manifest);
  EnterStage("plan");
  std::shared_ptr<const PreparedLayout> prepared = PrepareCheckpoint(opened.manifest, std::move(opened.parts));
  CheckMayKeep(prepared->plan, request_.may_keep);
  return prepared;
}

// The plan for this layout of tensors and parts. It is made for the first version that has the layout, and replayed for
// the others.
std::shared_ptr<const PreparedLayout> Stager::PrepareCheckpoint(const Manifest& manifest, HeldParts parts) {
  const bool same = prepared_ != nullptr && prepared_->plan.layout_digest() == manifest.layout_digest() &&
                    prepared_->plan.parts() == parts && prepared_->plan.partial() == request_.partial;
  if (same) return prepared_;
  const StageClock::Scope timing(AccountOf("plan"));
  const KernelLayout& kernel = layout();  // before TakeQuantizedLayersAsTheyCome changes the model's form
  TakeQuantizedLayersAsTheyCome(*model_, manifest, quantization_);
  prepared_ =
      std::make_shared<const PreparedLayout>(LoadPlan::Build(*model_, manifest, request_.partial, std::move(parts)),
                                             manifest, kernel, recipes_, options_.chunk_bytes);
  return prepared_;
}

// The plan of tensors that are taken whole: parameters, or what is made of them.
std::shared_ptr<const PreparedLayout> Stager::PrepareWhole(const Manifest& manifest) {
  LoadPlan plan = form() == VersionSource::Form::kKernel
                      ? LoadPlan::OfKernelTensors(*model_, manifest, SpecsOf(layout()))
                      : LoadPlan::OfItsParameters(*model_, manifest);
  return std::make_shared<const PreparedLayout>(std::move(plan), manifest, layout(), recipes_, options_.chunk_bytes);
}

}  // namespace layercast
