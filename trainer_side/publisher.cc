#include "layercast/publisher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <ranges>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/home_process.h"
#include "src/base/log.h"
#include "src/base/since_1970.h"
#include "src/base/utf8.h"
#include "src/checkpoint/formats/checkpoint.h"
#include "src/metrics/metrics_endpoint.h"
#include "src/session/offer/offer_service.h"
#include "src/session/takers/taker_tally.h"
#include "src/session/traces/session_traces.h"
#include "src/tensor/adapter_tensor_name.h"
#include "src/trace/otlp_spans.h"
#include "src/wire/frames.h"
#include "trainer_side/declared_weights.h"
#include "trainer_side/durable/durable_versions.h"
#include "trainer_side/folder_orders.h"
#include "trainer_side/kept_tensors.h"
#include "trainer_side/kept_versions.h"
#include "trainer_side/metrics/publisher_samples.h"
#include "trainer_side/published_state.h"
#include "trainer_side/stored_weights.h"
#include "trainer_side/version_list.h"

namespace layercast {
namespace {

constexpr std::size_t kMostThreads = 1024;
constexpr std::size_t kMostInAFleet = 64;
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);

// What the user's callback throws is logged.
SessionTraces::Send SenderOf(const std::function<void(std::string)>& on_trace) {
  if (!on_trace) return {};
  return [on_trace](const ProcessTrace& trace, const TraceContext& of) {
    try {
      on_trace(OtlpBody({&trace, 1}, of, NanosecondsTo1970()));
    } catch (const std::exception& error) {
      log::warn("on_trace threw: {}", error.what());
    }
  };
}

template <class Value>
void ExpectWithin(const char* option, Value least, Value value, Value most) {
  if (least <= value && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument, std::string("a publisher's ") + option + ": expected " +
                                               std::to_string(least) + " to " + std::to_string(most) + ", got " +
                                               std::to_string(value));
}

PublisherOptions Checked(PublisherOptions options) {
  constexpr std::size_t kOne = 1;
  ExpectWithin("retained_versions", kOne, options.retained_versions, std::numeric_limits<std::size_t>::max());
  ExpectWithin("store.retained_versions", kOne, options.store.retained_versions,
               std::numeric_limits<std::size_t>::max());
  ExpectWithin("threads", kOne, options.threads, kMostThreads);
  ExpectWithin("nccl_fleet", kOne, options.nccl_fleet, kMostInAFleet);
  ExpectWithin("peer_timeout (ms)", std::chrono::milliseconds::rep{1}, options.peer_timeout.count(), kLongest.count());
  ExpectWithin("eviction_time (ms)", std::chrono::milliseconds::rep{0}, options.eviction_time.count(),
               kLongest.count());
  return options;
}

// The norms are the base's, which engines that take adapters alone go on serving.
void ExpectNoNoiseOfAdapters(const Manifest& manifest) {
  const auto of_base = [](const Manifest::Entry& entry) { return !AdapterTensorName::Of(entry.spec.name); };
  if (!manifest.noise() || std::ranges::any_of(manifest.entries(), of_base)) return;
  throw Error(ErrorCode::kUnsupported,
              manifest.version().ToString() +
                  ": noise on the norms of a version of adapters alone: expected a base beside "
                  "them, whose norms they are");
}

}  // namespace

const Version& PublishedVersion::version() const { return state_->offered->manifest().version(); }
const std::string& PublishedVersion::run() const { return state_->offered->provenance().run; }
void PublishedVersion::Withdraw() const { state_->Withdraw(); }
bool PublishedVersion::WaitReleased(std::chrono::milliseconds timeout) const { return state_->WaitReleased(timeout); }
bool PublishedVersion::WaitStored(std::chrono::milliseconds timeout) const { return state_->WaitStored(timeout); }
int PublishedVersion::readers() const { return state_->offered->readers(); }

class Publisher::Impl final : public VersionKeeper {
 public:
  explicit Impl(const PublisherOptions& options)
      : options_(Checked(options)),
        pool_(options.threads),
        failpoints_(FailPoints::FromEnvironment("publisher")),
        kept_({.retained_versions = options.retained_versions,
               .retained_bytes = options.retained_bytes,
               .evicted_versions = options.evicted_versions}),
        orders_(
            options.allow_paths, [this](const FolderOrder& order) { return PublishFolder(order); },
            [this] { return kept_.FreeOrdered(); }),
        service_({.endpoint = options.endpoint,
                  .keys = Keys::From(options.keys),
                  .name = "publisher",
                  .stream_window_bytes = options.stream_window_bytes,
                  .peer_timeout = options.peer_timeout,
                  .eviction_time = options.eviction_time,
                  .connection_budget = options.connection_budget,
                  .channels = options.channels,
                  .nccl_fleet = options.nccl_fleet,
                  .keeper = this,
                  .takers = options.metrics_bind.empty() ? nullptr : &takers_,
                  .send_trace = SenderOf(options.on_trace)},
                 pool_, failpoints_, &device_tensors_) {
    if (!options.store.path.empty()) {
      durable_ = std::make_shared<DurableVersions>(options.store, device_tensors_, failpoints_);
      Restore();
    }
    if (options.metrics_bind.empty()) return;
    metrics_ = std::make_unique<MetricsEndpoint>(options.metrics_bind, options.metrics_open || options.keys.insecure,
                                                 [this] { return Samples(); });
  }

  ~Impl() override {
    metrics_.reset();
    orders_.Stop();
    if (durable_ != nullptr) durable_->End();  // while what it writes is still there
    service_.Stop();
    kept_.Orphan();
  }

  std::string endpoint() const { return service_.endpoint(); }
  std::string metrics_address() const { return metrics_ == nullptr ? "" : metrics_->address(); }
  wire::VersionsAnswer List() const override { return kept_.List(durable_.get()); }
  wire::OfferedVersions OfferedSince(const wire::OfferedSince& since) const override {
    return kept_.OfferedSince(since);
  }
  void Pin(const wire::PinVersion& order) override { kept_.Pin(order); }
  void Hold(const wire::HoldVersion& order) override { kept_.Hold(order); }
  void Evict(const wire::EvictVersion& order) override {
    kept_.Evict(order);
    orders_.Free();
  }
  void Publish(wire::PublishFolder order, Answer answer) override {
    orders_.Put({std::move(order), std::move(answer)});
  }
  bool IsHere() const { return home_.IsHere(); }

  std::shared_ptr<PublishedState> Publish(PublishOptions options, Weights weights) {
    home_.Expect("a publisher");
    CheckName("lineage", options.lineage);
    if (!options.run) options.run = RunFromEnvironment();
    CheckName("run", *options.run);
    if (publishing_ == std::this_thread::get_id()) {
      throw Error(ErrorCode::kFailedPrecondition, "Publish was called by the walk of another Publish");
    }
    const std::lock_guard lock(mutex_);
    publishing_ = std::this_thread::get_id();
    const struct Done {
      std::atomic<std::thread::id>& publishing;
      ~Done() { publishing = std::thread::id(); }
    } done{publishing_};
    kept_.CheckNewer(options);
    if (!weights.walk) throw Error(ErrorCode::kInvalidArgument, "weights without a walk");
    ExpectStorable(options);
    ExpectWithin("config (bytes)", std::size_t{0}, weights.config.size(), wire::kMaxConfigBytes);
    kept_.FreeEvicted();
    auto state = options.mode == PublishMode::kStream ? OfferStream(options, std::move(weights))
                                                      : OfferSnapshot(options, weights);
    ExpectNoNoiseOfAdapters(state->offered->manifest());
    if (auto same = kept_.Restored(state->offered->manifest().version(), *options.run)) return same;
    service_.Offer(state->offered);
    last_layout_ = state->offered->manifest().layout();
    kept_.Add(state, options);
    ++published_;
    if (durable_ != nullptr && options.mode == PublishMode::kSnapshot) durable_->Put(state->offered);
    return state;
  }

 private:
  MetricSamples Samples() const {
    return PublisherSamples({.versions = List(),
                             .takers = takers_.Counts(),
                             .published = published_,
                             .orders = orders_.waiting(),
                             .now_ms = MillisecondsSince1970()});
  }

  void ExpectStorable(const PublishOptions& options) const {
    if (durable_ == nullptr || options.part.ranks == 1 || !options.run->empty()) return;
    throw Error(ErrorCode::kInvalidArgument,
                "a part of a version, for a store: expected the name of the trainer's run, by which the parts of one "
                "run are told from those of another, got none");
  }

  // Offers what the store has, as far as it would be kept.
  void Restore() {
    const VersionStore& store = durable_->store();
    std::vector<StoredVersion> list = store.List();
    const std::size_t more = std::max(list.size(), options_.retained_versions) - options_.retained_versions;
    for (const StoredVersion& stored : list | std::views::drop(more)) {
      const std::vector<RunRecord> runs = store.Runs(stored.name.lineage);
      if (!stored.record.parts.empty()) continue;  // each rank had a part, and nobody the version
      try {
        if (runs.size() < stored.name.run) throw Error(ErrorCode::kCorrupt, "the store does not know its run");
        kept_.Restore(OfferAgain(stored), stored, runs);
      } catch (const Error& error) {
        log::warn("{} is not offered again: {}", stored.version().ToString(), error.what());
      }
    }
  }

  std::shared_ptr<PublishedState> OfferAgain(const StoredVersion& stored) {
    const Version& version = stored.version();
    const PublishOptions options{.lineage = version.lineage,
                                 .step = version.step,
                                 .run = stored.record.run,
                                 .noise = stored.record.manifest.noise()};
    auto state = OfferSnapshot(options, WeightsOf(durable_->store().folder(), stored.record));
    if (const Version& read = state->offered->manifest().version(); read != version) {
      throw Error(ErrorCode::kCorrupt, "its bytes in " + durable_->store().folder().ToString() + ": expected digest " +
                                           version.digest.ToHex() + ", got " + read.digest.ToHex());
    }
    durable_->NoteStored(state->offered);
    service_.Offer(state->offered);
    last_layout_ = state->offered->manifest().layout();
    log::info("{} is offered again", version.ToString());
    return state;
  }

  PublishedFolder PublishFolder(const FolderOrder& order) {
    Weights weights = Weights::FromCheckpoint({.path = order.path, .load_format = order.load_format});
    const std::string lineage = order.lineage.empty() ? kept_.NewestLineage() : order.lineage;
    const auto state = Publish({.lineage = lineage.empty() ? DefaultLineage(order.path) : lineage,
                                .step = order.step,
                                .run = order.run.empty() ? std::nullopt : std::optional(order.run)},
                               std::move(weights));
    const Manifest& manifest = state->offered->manifest();
    return {manifest.version(), manifest.size(), manifest.total_bytes()};
  }

  std::shared_ptr<PublishedState> OfferSnapshot(const PublishOptions& options, const Weights& weights) {
    auto state = std::make_shared<PublishedState>();
    state->service = &service_;
    state->durable = durable_;
    WorkClock clock;
    state->memory = TakeSnapshot(options, weights, last_layout_,
                                 {.host = service_.arena(),
                                  .device = device_tensors_,
                                  .keeps = [this](const Device& device) { return service_.carries(device); },
                                  .pool = pool_,
                                  .kept = &copies_});
    state->memory.manifest = state->memory.manifest.With(options.noise);
    const Offer offer{.id = service_.NextOfferId(), .tensors = state->memory.tensors, .device = state->memory.device};
    DigestsBySchedule digests = service_.DigestsOfAsked(state->memory.manifest.layout_digest(), offer);
    state->offered =
        std::make_shared<OfferedVersion>(state->memory.manifest, offer, weights.borrowed, clock.Lap(),
                                         Provenance{.run = *options.run, .config = weights.config}, std::move(digests));
    return state;
  }

  std::shared_ptr<PublishedState> OfferStream(const PublishOptions& options, Weights weights) {
    if (weights.specs.empty() && options.part.ranks == 1) {
      throw Error(ErrorCode::kInvalidArgument, "a stream needs its tensors' specs beforehand: engines plan with them");
    }
    auto layout = LayOut(LaidOut(weights), options.part.ranks != 1, last_layout_);
    auto state = std::make_shared<PublishedState>();
    state->service = &service_;
    state->durable = durable_;
    state->walk = std::make_shared<WalkFunction>(std::move(weights.walk));
    Manifest manifest =
        Manifest::OfLayout(options.lineage, options.step, std::move(layout), options.part).With(options.noise);
    Provenance provenance{.run = *options.run, .config = std::move(weights.config)};
    const auto stored = durable_ == nullptr ? nullptr : durable_->Stream(manifest, provenance, pool_);
    state->offered = std::make_shared<OfferedVersion>(
        std::move(manifest),
        [walk = state->walk, stored](std::span<const std::string> order) {
          return stored == nullptr ? (*walk)(order) : stored->Through((*walk)(order));
        },
        options.layer_order, std::move(provenance));
    if (stored != nullptr) durable_->Await(state->offered, stored.get());
    return state;
  }

  static std::vector<LaidOutTensor> LaidOut(const Weights& weights) {
    CheckOnePartEach(weights);
    std::vector<LaidOutTensor> tensors;
    tensors.reserve(weights.specs.size());
    for (const TensorSpec& spec : weights.specs) tensors.push_back({spec});
    for (std::size_t i = 0; i < weights.parts.size(); ++i) tensors[i].part = weights.parts[i];
    return tensors;
  }

  const HomeProcess home_;
  const PublisherOptions options_;
  WorkerPool pool_;
  FailPoints failpoints_;
  std::mutex mutex_;
  std::atomic<std::thread::id> publishing_{};  // who holds mutex_ in Publish, and so may not take it again
  DeviceTensors device_tensors_{OpenCudaStream, pool_};
  KeptVersions kept_;
  FolderOrders orders_;  // before the service, which hands it orders
  TakerTally takers_;    // likewise, if somebody asks for metrics
  OfferService service_;
  std::shared_ptr<DurableVersions> durable_;           // null: no store. Versions' handles look at it while it lives
  KeptTensors copies_;                                 // guarded by mutex_
  std::shared_ptr<const ManifestLayout> last_layout_;  // guarded by mutex_
  std::atomic<std::uint64_t> published_{0};
  std::unique_ptr<MetricsEndpoint> metrics_;  // null: nobody asks for them. The last, for it asks the others
};

Publisher::Publisher(const PublisherOptions& options)
    : impl_(NamingWhatRanOut([&] { return std::make_unique<Impl>(options); })) {}
Publisher::~Publisher() {
  if (!impl_->IsHere()) {  // its threads are in another process
    [[maybe_unused]] const Impl* const left = impl_.release();
  }
}
std::string Publisher::endpoint() const { return impl_->endpoint(); }
std::string Publisher::metrics_address() const { return impl_->metrics_address(); }

VersionList Publisher::Versions() const { return ToVersionList(impl_->List()); }
void Publisher::Pin(const Version& version, bool pin) {
  impl_->Pin({version.lineage, version.step, version.digest, pin});
}
void Publisher::Evict(const Version& version) { impl_->Evict({version.lineage, version.step, version.digest}); }

PublishedVersion Publisher::Publish(const PublishOptions& options, Weights weights) {
  return PublishedVersion(NamingWhatRanOut([&] { return impl_->Publish(options, std::move(weights)); }));
}

}  // namespace layercast
