#include "layercast/publisher.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/home_process.h"
#include "src/base/utf8.h"
#include "src/session/offer/offer_service.h"
#include "src/wire/frames.h"
#include "trainer_side/declared_weights.h"
#include "trainer_side/snapshot.h"

namespace layercast {
namespace {

// How long to wait until a version that has expired is released. If all goes well, it does not take that long.
constexpr std::chrono::milliseconds kLettingGo{1000};

constexpr std::size_t kMostThreads = 1024;
constexpr std::size_t kMostInAFleet = 64;
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);

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
  ExpectWithin("threads", kOne, options.threads, kMostThreads);
  ExpectWithin("nccl_fleet", kOne, options.nccl_fleet, kMostInAFleet);
  ExpectWithin("peer_timeout (ms)", std::chrono::milliseconds::rep{1}, options.peer_timeout.count(), kLongest.count());
  ExpectWithin("eviction_time (ms)", std::chrono::milliseconds::rep{0}, options.eviction_time.count(),
               kLongest.count());
  return options;
}

}  // namespace

struct PublishedVersion::State {
  std::shared_ptr<OfferedVersion> offered;  // the second owner is the service
  std::mutex mutex;
  Snapshot memory;                     // empty for a stream, and once released; guarded by mutex
  std::shared_ptr<WalkFunction> walk;  // of a stream, empty once released; the other owner is `offered`, in its walks
  OfferService* service = nullptr;     // null once released, or the publisher is gone; guarded by mutex

  void Withdraw() {
    const std::lock_guard lock(mutex);
    if (service != nullptr) service->Withdraw(offered);
  }

  // Has the version's readers refused.
  void Expire() {
    const std::lock_guard lock(mutex);
    if (service != nullptr) service->Expire(offered);
  }

  // When it has returned true, no channel reads the memory any more.
  bool WaitReleased(std::chrono::milliseconds timeout) {
    const bool released = offered->WaitReleased(Deadline::After(timeout));
    const std::lock_guard lock(mutex);
    if (service == nullptr) return true;
    if (released) {
      service->Forget(offered);
      LetGo();
    }
    return released;
  }

  // Called when the publisher is destroyed, and with it its arena, where the memory lies.
  void Orphan() {
    offered->Retire();
    const std::lock_guard lock(mutex);
    LetGo();
  }

 private:
  // Drops the memory and the way to the publisher, because the user may keep a handle for as long as they like.
  void LetGo() {
    memory = Snapshot();
    if (walk != nullptr) *walk = nullptr;  // nobody walks what is released
    service = nullptr;
  }
};

const Version& PublishedVersion::version() const { return state_->offered->manifest().version(); }
const std::string& PublishedVersion::run() const { return state_->offered->provenance().run; }
void PublishedVersion::Withdraw() const { state_->Withdraw(); }
bool PublishedVersion::WaitReleased(std::chrono::milliseconds timeout) const { return state_->WaitReleased(timeout); }
int PublishedVersion::readers() const { return state_->offered->readers(); }

class Publisher::Impl {
 public:
  explicit Impl(const PublisherOptions& options)
      : options_(Checked(options)),
        pool_(options.threads),
        failpoints_(FailPoints::FromEnvironment("publisher")),
        service_({.endpoint = options.endpoint,
                  .keys = Keys::From(options.keys),
                  .name = "publisher",
                  .stream_window_bytes = options.stream_window_bytes,
                  .peer_timeout = options.peer_timeout,
                  .eviction_time = options.eviction_time,
                  .channels = options.channels,
                  .nccl_fleet = options.nccl_fleet},
                 pool_, failpoints_, &device_tensors_) {}

  ~Impl() {
    service_.Stop();
    for (const auto& state : current_) state->Orphan();
    for (const auto& state : evicted_) state->Orphan();
  }

  std::string endpoint() const { return service_.endpoint(); }
  bool IsHere() const { return home_.IsHere(); }

  std::shared_ptr<PublishedVersion::State> Publish(PublishOptions options, Weights weights) {
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
    CheckNewer(options);
    if (!weights.walk) throw Error(ErrorCode::kInvalidArgument, "weights without a walk");
    ExpectWithin("config (bytes)", std::size_t{0}, weights.config.size(), wire::kMaxConfigBytes);
    FreeEvicted();
    auto state = options.mode == PublishMode::kStream ? OfferStream(options, std::move(weights))
                                                      : OfferSnapshot(options, weights);
    service_.Offer(state->offered);
    last_layout_ = state->offered->manifest().layout();
    last_step_[options.lineage] = options.step;
    current_.push_back(state);
    while (current_.size() > options_.retained_versions) {
      current_.front()->Withdraw();
      evicted_.push_back(std::move(current_.front()));
      current_.pop_front();
    }
    return state;
  }

 private:
  void CheckNewer(const PublishOptions& options) const {
    const auto last = last_step_.find(options.lineage);
    if (last == last_step_.end() || options.step > last->second) return;
    throw Error(ErrorCode::kInvalidArgument, "lineage '" + options.lineage + "': expected a step after " +
                                                 std::to_string(last->second) + ", got " +
                                                 std::to_string(options.step));
  }

  std::shared_ptr<PublishedVersion::State> OfferSnapshot(const PublishOptions& options, const Weights& weights) {
    auto state = std::make_shared<PublishedVersion::State>();
    state->service = &service_;
    WorkClock clock;
    state->memory = TakeSnapshot(options, weights, last_layout_,
                                 {.host = service_.arena(),
                                  .device = device_tensors_,
                                  .keeps = [this](const Device& device) { return service_.carries(device); },
                                  .pool = pool_});
    const Offer offer{.id = service_.NextOfferId(), .tensors = state->memory.tensors, .device = state->memory.device};
    DigestsBySchedule digests = service_.DigestsOfAsked(state->memory.manifest.layout_digest(), offer);
    state->offered =
        std::make_shared<OfferedVersion>(state->memory.manifest, offer, weights.borrowed, clock.Lap(),
                                         Provenance{.run = *options.run, .config = weights.config}, std::move(digests));
    return state;
  }

  std::shared_ptr<PublishedVersion::State> OfferStream(const PublishOptions& options, Weights weights) {
    if (weights.specs.empty() && options.part.ranks == 1) {
      throw Error(ErrorCode::kInvalidArgument, "a stream needs its tensors' specs beforehand: engines plan with them");
    }
    auto layout = LayOut(LaidOut(weights), options.part.ranks != 1, last_layout_);
    auto state = std::make_shared<PublishedVersion::State>();
    state->service = &service_;
    state->walk = std::make_shared<WalkFunction>(std::move(weights.walk));
    state->offered = std::make_shared<OfferedVersion>(
        Manifest::OfLayout(options.lineage, options.step, std::move(layout), options.part),
        [walk = state->walk](std::span<const std::string> order) { return (*walk)(order); }, options.layer_order,
        Provenance{.run = *options.run, .config = std::move(weights.config)});
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

  // Frees evicted versions that nobody reads any more, and the oldest ones anyway if there are too many. Called
  // whenever a new version is published.
  void FreeEvicted() {
    std::erase_if(evicted_, [](const auto& state) { return state->WaitReleased(std::chrono::milliseconds(0)); });
    if (evicted_.size() <= options_.evicted_versions) return;
    for (std::size_t i = 0; i < evicted_.size() - options_.evicted_versions; ++i) evicted_[i]->Expire();
    std::erase_if(evicted_,
                  [](const auto& state) { return state->offered->expired() && state->WaitReleased(kLettingGo); });
  }

  const HomeProcess home_;
  const PublisherOptions options_;
  WorkerPool pool_;
  FailPoints failpoints_;
  std::mutex mutex_;
  std::atomic<std::thread::id> publishing_{};  // who holds mutex_ in Publish, and so may not take it again
  DeviceTensors device_tensors_{OpenCudaStream, pool_};
  OfferService service_;
  // The other owners of these states are the caller's handles.
  std::deque<std::shared_ptr<PublishedVersion::State>> current_;   // oldest first; guarded by mutex_
  std::vector<std::shared_ptr<PublishedVersion::State>> evicted_;  // oldest first; guarded by mutex_
  std::map<std::string, std::uint64_t> last_step_;                 // by lineage; guarded by mutex_
  std::shared_ptr<const ManifestLayout> last_layout_;              // guarded by mutex_
};

Publisher::Publisher(const PublisherOptions& options)
    : impl_(NamingWhatRanOut([&] { return std::make_unique<Impl>(options); })) {}
Publisher::~Publisher() {
  if (!impl_->IsHere()) {  // its threads are in another process
    [[maybe_unused]] const Impl* const left = impl_.release();
  }
}
std::string Publisher::endpoint() const { return impl_->endpoint(); }

PublishedVersion Publisher::Publish(const PublishOptions& options, Weights weights) {
  return PublishedVersion(NamingWhatRanOut([&] { return impl_->Publish(options, std::move(weights)); }));
}

}  // namespace layercast
