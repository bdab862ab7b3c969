// The ways in, one for each kind of source: what each finds out before bytes move (Open...), and how it moves them
// (Receive...). Part of the stager.
#include <string>
#include <utility>
#include <vector>

#include "engine_side/reload/pipeline/derived_check.h"
#include "engine_side/reload/pipeline/stage_clock.h"
#include "engine_side/reload/prequantized/quantized_checkpoint.h"
#include "engine_side/reload/receive/stager.h"
#include "engine_side/reload/sources/dummy_weights.h"
#include "engine_side/reload/sources/kernel_format.h"
#include "engine_side/reload/sources/lent_weights.h"
#include "engine_side/reload/sources/watched_sink.h"
#include "layercast/error.h"
#include "src/base/naming_source.h"
#include "src/checkpoint/config_text.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {

void Stager::OpenOrigin(const Origin& origin) {
  if (!origin.source.path.empty()) return OpenPath(origin.source, origin.is_checkpoint_format);
  throw Error(ErrorCode::kFailedPrecondition, "there is no checkpoint to re-read: none was loaded from a path");
}

void Stager::OpenPath(const CheckpointSource& source, bool is_checkpoint_format) {
  const std::string lineage = DefaultLineage(source.path);
  report_.channel = "path";
  report_.version.lineage = lineage;
  if (is_checkpoint_format && !IsKernelFormat(source)) return OpenCheckpoint(source);
  if (source_.partial) {
    throw Error(ErrorCode::kInvalidArgument,
                "a partial version: expected tensors of a checkpoint, got kernel tensors in " + source.path);
  }
  KernelFiles files(source.path, parallel_, recipes_.name());
  if (files.label().version()) report_.version = *files.label().version();
  NamingSource("checkpoint " + source.path, [&] { CheckKernelFormat(files.specs(), layout()); });
  CheckConfigs(ConfigsOf(source, ConfigTextBeside(source.path)));
  progress_.Expect(files.total_bytes(), layout().num_layers());
  receive_ = [this, source, is_checkpoint_format, lineage, files = std::move(files)] {
    StagedVersion staged = ReceiveKernelFormat(*Watched(files.Weights()), lineage);
    files.label().CheckServedDigest(staged.digest);
    if (files.label().version()) staged.version = report_.version = *files.label().version();
    staged.origin = {source, is_checkpoint_format};
    return staged;
  };
}

void Stager::OpenCheckpoint(const CheckpointSource& source) {
  const Checkpoint files = Checkpoint::Open(source);
  auto checkpoint = std::make_shared<const QuantizedCheckpoint>(files, *model_, quantization_, layer_memory_, pool_);
  BeginAttempt(Manifest::OfSpecs(DefaultLineage(source.path), 0, checkpoint->specs()),
               {.from = "checkpoint " + source.path, .in_order = true, .snapshot = false},
               ConfigsOf(source, files.config()));
  receive_ = [this, source, checkpoint] {
    TakeAll(*Watched(checkpoint->Weights(LayerOrder(checkpoint->specs()))));
    StagedVersion staged = FinishAttempt(std::nullopt);
    if (!source_.partial) staged.origin = {source, true};
    return staged;
  };
}

// Ranks hold different values, and no checkpoint has them, so the version is named by its seed alone.
void Stager::OpenDummy() {
  const std::uint64_t seed = source_.seed;
  report_.channel = "dummy";
  report_.version = Manifest("dummy", seed, {}).version();
  const KernelLayout& kernel = layout();
  auto parameters = std::make_shared<const LoadPlan>(FullPrecisionPlan());
  std::vector<TensorSpec> specs;
  for (const PlannedParameter& parameter : parameters->parameters()) specs.push_back(parameter.spec);
  Manifest manifest = Manifest::OfSpecs("dummy", seed, specs);
  auto prepared = std::make_shared<const PreparedLayout>(LoadPlan::OfItsParameters(*model_, manifest), manifest, kernel,
                                                         recipes_, options_.chunk_bytes);
  BeginPrepared(std::move(prepared), std::move(manifest), {.in_order = true, .snapshot = false});
  receive_ = [this, parameters, seed] {
    TakeAll(*Watched(std::make_unique<DummyWeights>(*parameters, parallel_.tp_rank, seed)));
    return FinishAttempt(Manifest("dummy", seed, {}).version());
  };
}

void Stager::OpenIterator() {
  report_.channel = "iterator";
  report_.version.lineage = source_.lineage;
  if (source_.iterator == nullptr) throw Error(ErrorCode::kInvalidArgument, "expected an iterator, got null");
  if (!source_.is_checkpoint_format) return OpenKernelFormatIterator();
  BeginAttempt(ManifestOf(source_.lineage, source_.step.value_or(0), source_.specs), {},
               {{"the iterator", source_.config}});
  receive_ = [this] {
    TakeAll(*Watched(std::move(source_.iterator)));
    return FinishAttempt(std::nullopt);
  };
}

// The names that must come are known: they are those of the engine's kernel tensors. Whether they do come can be
// checked now if there are specs, and otherwise only at the end.
void Stager::OpenKernelFormatIterator() {
  CheckConfigs(std::vector<SourceConfig>{{"the iterator", source_.config}});
  if (!source_.specs.empty()) {
    CheckKernelFormat(source_.specs, layout());
  } else if (committer().writes_layers()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "commit policy " + std::string(CommitPolicyName(options_.commit)) +
                    " needs the specs of an iterator's tensors: coverage is checked before the first byte is written");
  }
  receive_ = [this] { return ReceiveKernelFormat(*Watched(std::move(source_.iterator)), source_.lineage); };
}

void Stager::OpenPublisher() {
  EnterStage("connect");
  auto [manifest, parts] = peers_.Open({.endpoints = source_.endpoints,
                                        .lineage = source_.lineage,
                                        .step = source_.step,
                                        .attempt = attempt_number_,
                                        .stop = stop_});
  report_.version = peers_.offered();
  const bool snapshot = peers_.is_snapshot();
  BeginAttempt(std::move(manifest), {.from = peers_.Peers(), .in_order = snapshot, .snapshot = snapshot},
               peers_.configs(), std::move(parts));
  receive_ = [this] { return ReceivePublished(); };
}

// A lender sends its derived tensors too, so nothing is computed from what arrives.
void Stager::OpenEngine() {
  EnterStage("connect");
  const MergedVersion lent = peers_.Open({.endpoints = source_.endpoints,
                                          .lineage = source_.version.lineage,
                                          .step = source_.version.step,
                                          .lender = true,
                                          .attempt = attempt_number_,
                                          .stop = stop_});
  report_.version = source_.version;
  NamingSource(peers_.Peers(), [&] { CheckKernelFormat(lent.manifest.specs(), layout()); });
  CheckConfigs(peers_.configs());
  progress_.Expect(lent.manifest.total_bytes(), layout().num_layers());
  receive_ = [this] { return ReceiveLent(source_.version, source_.served_digest); };
}

StagedVersion Stager::ReceivePublished() {
  peers_.Fetch(attempt_->schedule().schedule, attempt_->prepared().SessionRequests(), *attempt_);
  return FinishAttempt(peers_.offered());
}

// What arrives is what the lender's buffers read back as, and this engine's buffers must read back the same. So equal
// digests prove that everything came.
StagedVersion Stager::ReceiveLent(const Version& version, const Digest& served_digest) {
  const Manifest manifest = peers_.manifests().front();
  CheckKernelFormat(manifest.specs(), layout());
  const Schedule schedule = WholeTensors(manifest, options_.chunk_bytes);
  LentTensors sink(manifest, schedule, layout(), BeginWriting(), work());
  peers_.Fetch(schedule, {}, sink);
  sink.Finish();
  FinishWork();
  DescribeKernelTensors(schedule.total_bytes());
  StagedVersion staged = Digested(version);
  if (staged.digest == served_digest) return staged;
  throw Error(ErrorCode::kCorrupt, peers_.Peers() + ": " + version.ToString() +
                                       ": digest of its served bytes expected " + served_digest.ToHex() + ", got " +
                                       staged.digest.ToHex());
}

StagedVersion Stager::ReceiveKernelFormat(WeightsIterator& weights, const std::string& lineage) {
  const LoadPlan plan = FullPrecisionPlan();
  DerivedCheck derived(plan, layout(), recipes_, layer_memory_, pool_);
  Manifest manifest = LoadKernelFormat(weights, lineage, layout(), derived, BeginWriting(), work(), pool_);
  FinishWork();
  report_.version = manifest.version();
  DescribeKernelTensors(manifest.total_bytes());
  return Digested(manifest.version());
}

void Stager::FinishWork() {
  const StageClock::Scope timing(report_.stage_ms["commit"]);
  work().Finish();
}

void Stager::DescribeKernelTensors(std::uint64_t bytes) {
  report_.staged_bytes = layout().staged_bytes();
  report_.bytes = report_.bytes_total = bytes;
  report_.layers = layout().num_layers();
  progress_.Expect(bytes, report_.layers);  // an iterator did not say how much it would be
  progress_.Came(bytes, report_.layers);
}

void Stager::TakeAll(WeightsIterator& weights) {
  while (std::optional<NamedTensor> tensor = weights.Next()) attempt_->Take(*tensor);
}

std::unique_ptr<WeightsIterator> Stager::Watched(std::unique_ptr<WeightsIterator> weights) {
  return std::make_unique<WatchedWalk>(std::move(weights), [this](std::uint64_t bytes) { NoteCame(bytes); }, stop_);
}

void Stager::NoteCame(std::uint64_t bytes) {
  progress_.Came(attempt_ == nullptr ? bytes : attempt_->bytes(), attempt_ == nullptr ? 0 : attempt_->layers());
}

}  // namespace layercast
