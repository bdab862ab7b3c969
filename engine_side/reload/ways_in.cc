// The ways in: what is known of a source before its bytes move, and how they do.
#include <utility>

#include "engine_side/reload/kernel_format.h"
#include "engine_side/reload/stager.h"
#include "layercast/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/checkpoint_manifest.h"

namespace layercast {
namespace {

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

// The channel's own words name another address than the publisher's, or none.
template <class Call>
auto NamingPublisher(const std::string& endpoint, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.find(endpoint) != std::string::npos) throw;
    throw Error(error.code(), "publisher " + endpoint + ": " + what);
  }
}

}  // namespace

void Stager::OpenOrigin() {
  if (!origin_.path.empty()) return OpenPath(Origin(origin_).path, origin_.is_checkpoint_format);
  throw Error(ErrorCode::kFailedPrecondition, "there is no checkpoint to re-read: none was loaded from a path");
}

void Stager::OpenPath(const std::string& path, bool is_checkpoint_format) {
  report_.channel = "path";
  report_.version.lineage = DefaultLineage(path);
  if (is_checkpoint_format) return OpenCheckpoint(path);
  std::vector<NamedTensor> tensors = layercast::OpenKernelFormat(path, parallel_.tp_rank, parallel_.tp_size);
  std::vector<TensorSpec> specs;
  for (const NamedTensor& tensor : tensors) specs.push_back({tensor.name, tensor.tensor.dtype, tensor.tensor.shape});
  CheckKernelFormat(specs, layout());
  receive_ = [this, path, tensors = std::move(tensors)] {
    StagedVersion staged = ReceiveKernelFormat(*MakeWeightsIterator(tensors), DefaultLineage(path));
    origin_ = {path, false};
    return staged;
  };
}

void Stager::OpenCheckpoint(const std::string& path) {
  auto checkpoint = std::make_shared<const Checkpoint>(Checkpoint::Open(path));
  BeginUnpublished(DefaultLineage(path), 0, checkpoint->specs(), {.in_order = true, .snapshot = false});
  receive_ = [this, path, checkpoint] {
    TakeAll(*checkpoint->Weights(LayerOrder(checkpoint->specs())));
    StagedVersion staged = FinishAttempt(std::nullopt);
    origin_ = {path, true};
    return staged;
  };
}

void Stager::OpenIterator() {
  report_.channel = "iterator";
  report_.version.lineage = source_.lineage;
  if (source_.iterator == nullptr) throw Error(ErrorCode::kInvalidArgument, "expected an iterator, got null");
  if (!source_.is_checkpoint_format) return OpenKernelFormatIterator();
  BeginUnpublished(source_.lineage, source_.step.value_or(0), OrLast(source_.specs), {});
  receive_ = [this] {
    TakeAll(*source_.iterator);
    return FinishAttempt(std::nullopt);
  };
}

// What names are to come is known: the engine's own. Whether they do come shows in the specs, or at the end.
void Stager::OpenKernelFormatIterator() {
  if (!source_.specs.empty()) {
    CheckKernelFormat(source_.specs, layout());
  } else if (committer().writes_layers()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "commit policy " + std::string(CommitPolicyName(options_.commit)) +
                    " needs the specs of an iterator's tensors: coverage is checked before the first byte is written");
  }
  receive_ = [this] { return ReceiveKernelFormat(*source_.iterator, source_.lineage); };
}

void Stager::OpenPublisher() {
  Connect(source_.lineage, source_.step);
  report_.version = session_->manifest().version();
  report_.channel = session_->channel();
  const bool snapshot = session_->mode() == PublishMode::kSnapshot;
  BeginAttempt(session_->manifest(), {.in_order = snapshot, .snapshot = snapshot});
  receive_ = [this] { return ReceivePublished(); };
}

void Stager::Connect(const std::string& lineage, std::optional<std::uint64_t> step) {
  const ReceiverIdentity self{
      .engine = options_.engine, .attempt = attempt_number_, .rank = parallel_.tp_rank, .tp_size = parallel_.tp_size};
  deadline_ = Deadline::After(timeout_);
  session_ = NamingPublisher(source_.location, [&] {
    return FetchSession::Open(source_.location, self, lineage, step, HowToFetch(), failpoints_, deadline_);
  });
}

void Stager::Reach() {
  if (session_ != nullptr || source_.kind != ReloadSource::Kind::kPublisher) return;
  const Version& opened = report_.version;
  Connect(opened.lineage, opened.step);
  const Version offered = session_->manifest().version();
  if (offered == opened) return;
  throw Error(ErrorCode::kFailedPrecondition, "publisher " + source_.location + ": expected to find " +
                                                  opened.ToString() + " again, got " + offered.ToString());
}

StagedVersion Stager::ReceivePublished() {
  Progress sink(*attempt_, attempt_->schedule().schedule.total_bytes(), options_.on_progress);
  try {
    NamingPublisher(source_.location, [&] {
      session_->Fetch(attempt_->schedule().schedule, attempt_->prepared().amax_requests, sink, deadline_);
    });
  } catch (const Error&) {
    Describe(session_->stats());
    throw;
  }
  Describe(session_->stats());
  return FinishAttempt(session_->manifest());
}

StagedVersion Stager::ReceiveKernelFormat(WeightsIterator& weights, const std::string& lineage) {
  Manifest manifest = LoadKernelFormat(weights, lineage, layout(), committer().Begin(), pool_);
  report_.version = manifest.version();
  report_.staged_bytes = layout().staged_bytes();
  report_.bytes = report_.bytes_total = manifest.total_bytes();
  report_.layers = LoadPlan::WithoutTensors(*model_).layers().size();
  return Digested(std::move(manifest));
}

void Stager::TakeAll(WeightsIterator& weights) {
  while (std::optional<NamedTensor> tensor = weights.Next()) attempt_->Take(*tensor);
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

}  // namespace layercast
