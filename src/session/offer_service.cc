#include "src/session/offer_service.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/base/bounded_queue.h"
#include "src/base/log.h"
#include "src/control/endpoint.h"
#include "src/session/choose_channel.h"
#include "src/session/chunk_digests.h"
#include "src/session/outbox.h"
#include "src/session/stream_walk.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{500};  // how often leases are looked at
constexpr std::size_t kCachedSchedules = 256;
constexpr std::size_t kQueuedJobs = 4096;

struct Session {
  SessionKey key;
  wire::Hello hello;
  std::shared_ptr<OfferedVersion> version;  // the second owner is the publisher
  std::shared_ptr<const Schedule> schedule;
  std::set<std::uint32_t> row_amax_tensors;
  Clock::time_point last_heard;
  StreamWalk* walk = nullptr;
};

// A snapshot's subscription, answered by the digest thread.
struct DigestJob {
  SessionKey key;
  std::shared_ptr<OfferedVersion> version;
  std::shared_ptr<const Schedule> schedule;
  std::vector<std::uint32_t> row_amax_tensors;
};

}  // namespace

class OfferService::Impl {
 public:
  Impl(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints)
      : options_(options),
        pool_(pool),
        failpoints_(failpoints),
        context_(1),
        socket_(context_, zmq::socket_type::router) {
    CheckBindable(options.endpoint, options.allow_remote);
    Bind();
    const std::string host = HostOf(options.endpoint);
    for (const std::unique_ptr<Transport>& transport : transports_) {
      names_.emplace_back(transport->name());
      ends_.push_back(transport->Offering(host.empty() ? "127.0.0.1" : host));
      end_pointers_.push_back(ends_.back().get());
      if (arena_ == nullptr) arena_ = ends_.back()->arena();
    }
    if (arena_ == nullptr) arena_ = &host_memory_;
    digest_thread_ = std::jthread([this](const std::stop_token& stop) { RunDigests(stop); });
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  ~Impl() { Stop(); }

  void Stop() {
    if (stopped_) return;
    stopped_ = true;
    thread_.request_stop();
    outbox_.wake_up().Ring();
    thread_.join();
    jobs_.Close();
    digest_thread_.request_stop();
    digest_thread_.join();
    walks_.clear();
    for (auto& [key, session] : sessions_) session.version->RemoveReader();
    sessions_.clear();
    for (const std::shared_ptr<OfferedVersion>& version : versions_) RemoveFromEnds(*version);
    versions_.clear();
  }

  std::string endpoint() const { return bound_; }
  MemoryResource& arena() { return *arena_; }
  std::uint64_t NextOfferId() { return next_offer_id_.fetch_add(1); }

  void Offer(std::shared_ptr<OfferedVersion> version) {
    if (version->mode() == PublishMode::kSnapshot) {
      for (std::size_t i = 0; i < ends_.size(); ++i) {
        if (Carries(i, *version)) ends_[i]->Add(version->offer());
      }
    }
    const std::lock_guard lock(mutex_);
    versions_.push_back(std::move(version));
  }

  void Withdraw(const std::shared_ptr<OfferedVersion>& version) {
    const std::lock_guard lock(mutex_);
    std::erase(versions_, version);
    version->Retire();
  }

  void Forget(const std::shared_ptr<OfferedVersion>& version) { RemoveFromEnds(*version); }

 private:
  void Bind() {
    socket_.set(zmq::sockopt::linger, 200);
    socket_.set(zmq::sockopt::router_mandatory, true);
    socket_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(wire::kMaxFrameBytes));
    try {
      socket_.bind(options_.endpoint);
    } catch (const zmq::error_t& error) {
      throw Error(ErrorCode::kUnavailable, "publisher endpoint '" + options_.endpoint + "': " + error.what());
    }
    bound_ = socket_.get(zmq::sockopt::last_endpoint);
  }

  // Borrowed memory lies where the trainer has it: a channel that hands over its own arena cannot carry it.
  bool Carries(std::size_t end, const OfferedVersion& version) const {
    return ends_[end]->arena() == nullptr || !version.borrowed();
  }

  void RemoveFromEnds(const OfferedVersion& version) {
    if (version.mode() != PublishMode::kSnapshot) return;
    for (OfferingEnd* end : end_pointers_) end->Remove(version.offer().id);
  }

  // The control socket's thread.
  void Run(const std::stop_token& stop) {
    Clock::time_point next_sweep = Clock::now() + kTick;
    while (!stop.stop_requested()) {
      std::array<zmq::pollitem_t, 2> items = {
          {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, outbox_.wake_up().fd(), ZMQ_POLLIN, 0}}};
      zmq::poll(items.data(), items.size(), kTick);
      for (auto& [key, message] : outbox_.TakeAll()) Send(key, message);
      TakeMessages();
      if (Clock::now() >= next_sweep) {
        DropSilent();
        next_sweep = Clock::now() + kTick;
      }
    }
  }

  void TakeMessages() {
    zmq::message_t routing_id;
    while (socket_.recv(routing_id, zmq::recv_flags::dontwait)) {
      const std::string from = routing_id.to_string();
      zmq::message_t body;
      std::size_t parts = 0;
      bool more = routing_id.more();
      while (more) {
        if (!socket_.recv(body)) break;
        more = body.more();
        ++parts;
      }
      if (parts == 1) Take(from, {static_cast<const std::byte*>(body.data()), body.size()});
    }
  }

  // One message; whatever is wrong with it is its sender's affair alone.
  void Take(const std::string& from, std::span<const std::byte> bytes) {
    SessionKey key{from, 0};
    try {
      wire::Frame frame = wire::Decode(bytes);
      key.session = frame.session;
      Dispatch(key, std::move(frame.message));
    } catch (const Error& error) {
      log::warn("receiver {}: {}", NameOf(key), error.what());
      Send(key, wire::Refused{error.code(), error.what()});
      Drop(key);
    }
  }

  void Dispatch(const SessionKey& key, wire::Message message) {
    if (auto* hello = std::get_if<wire::Hello>(&message)) return OnHello(key, std::move(*hello));
    const auto found = sessions_.find(key);
    if (found == sessions_.end()) {
      if (std::holds_alternative<wire::Bye>(message)) return;
      throw Error(ErrorCode::kFailedPrecondition, "no such session: it ended, or its lease ran out");
    }
    Session& session = found->second;
    session.last_heard = Clock::now();
    if (std::holds_alternative<wire::Ping>(message)) return Send(key, wire::Pong{});
    if (std::holds_alternative<wire::Bye>(message)) return Drop(key);
    if (auto* subscribe = std::get_if<wire::Subscribe>(&message)) return OnSubscribe(session, std::move(*subscribe));
    if (const auto* done = std::get_if<wire::TensorDone>(&message)) {
      if (session.walk != nullptr) session.walk->Done(key, done->sequence);
      return;
    }
    throw Error(ErrorCode::kInvalidArgument,
                "a receiver never sends '" + std::string(wire::MessageName(message)) + "'");
  }

  void OnHello(const SessionKey& key, wire::Hello hello) {
    if (sessions_.contains(key)) throw Error(ErrorCode::kInvalidArgument, "'hello' twice in one session");
    if (hello.newest_protocol < wire::kOldestProtocol || hello.oldest_protocol > wire::kNewestProtocol) {
      throw Error(ErrorCode::kUnsupported, "no common protocol: the publisher speaks " +
                                               Range(wire::kOldestProtocol, wire::kNewestProtocol) + ", the receiver " +
                                               Range(hello.oldest_protocol, hello.newest_protocol));
    }
    if (sessions_.size() >= options_.max_sessions) {
      throw Error(ErrorCode::kResourceExhausted,
                  "the publisher has " + std::to_string(sessions_.size()) + " sessions, the most it takes");
    }
    std::shared_ptr<OfferedVersion> version = FindVersion(hello);
    wire::Welcome welcome;
    welcome.protocol = std::min(hello.newest_protocol, wire::kNewestProtocol);
    welcome.publisher = options_.name;
    welcome.host = MyHost();
    welcome.stream = version->mode() == PublishMode::kStream;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      if (Carries(i, *version)) welcome.channels.push_back({names_[i], ends_[i]->address()});
    }
    welcome.manifest = version->encoded_manifest();
    version->AddReader();
    Session& session = sessions_[key];
    session.key = key;
    session.hello = std::move(hello);
    session.version = std::move(version);
    session.last_heard = Clock::now();
    Send(key, welcome);
  }

  static std::string Range(std::uint16_t oldest, std::uint16_t newest) {
    return std::to_string(oldest) + " to " + std::to_string(newest);
  }

  std::shared_ptr<OfferedVersion> FindVersion(const wire::Hello& hello) {
    const std::lock_guard lock(mutex_);
    std::string offered;
    for (auto version = versions_.rbegin(); version != versions_.rend(); ++version) {
      const Version& name = (*version)->manifest().version();
      const bool matches =
          (hello.lineage.empty() || hello.lineage == name.lineage) && (!hello.step_known || hello.step == name.step);
      if (matches) return *version;
      offered += (offered.empty() ? "" : ", ") + name.lineage + "@" + std::to_string(name.step);
    }
    const std::string wanted = (hello.lineage.empty() ? "any lineage" : hello.lineage) +
                               (hello.step_known ? "@" + std::to_string(hello.step) : "");
    throw Error(ErrorCode::kNotFound,
                "version " + wanted + " is not offered here; offered: " + (offered.empty() ? "none" : offered));
  }

  void OnSubscribe(Session& session, wire::Subscribe subscribe) {
    if (session.schedule != nullptr) throw Error(ErrorCode::kInvalidArgument, "'subscribe' twice in one session");
    std::shared_ptr<const Schedule> schedule = FindSchedule(subscribe);
    if (schedule == nullptr) return Send(session.key, wire::NeedSchedule{});
    const bool stream = session.version->mode() == PublishMode::kStream;
    CheckSchedule(*schedule, session.version->manifest(), stream);
    for (const std::uint32_t tensor : subscribe.row_amax_tensors) {
      if (tensor < session.version->manifest().entries().size()) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  "row magnitudes of tensor " + std::to_string(tensor) + ": there is no such tensor");
    }
    session.schedule = schedule;
    session.row_amax_tensors.insert(subscribe.row_amax_tensors.begin(), subscribe.row_amax_tensors.end());
    if (stream) {
      Send(session.key, wire::Subscribed{});
      return StartWalkIfComplete(session);
    }
    DigestJob job{session.key, session.version, schedule, std::move(subscribe.row_amax_tensors)};
    if (!jobs_.Push(std::move(job), Deadline(Clock::now()))) {
      throw Error(ErrorCode::kResourceExhausted, "too many schedules wait for their digests");
    }
  }

  std::shared_ptr<const Schedule> FindSchedule(const wire::Subscribe& subscribe) {
    const auto cached = schedules_.find(subscribe.schedule_digest);
    if (cached != schedules_.end()) return cached->second;
    if (subscribe.schedule.empty()) return nullptr;
    auto schedule = std::make_shared<const Schedule>(Schedule::Decode(subscribe.schedule));
    if (schedule->digest() != subscribe.schedule_digest) {
      throw Error(ErrorCode::kCorrupt, "schedule: digest expected " + subscribe.schedule_digest.ToHex() + ", got " +
                                           schedule->digest().ToHex());
    }
    if (schedules_.size() >= kCachedSchedules) schedules_.erase(schedules_.begin());
    return schedules_[subscribe.schedule_digest] = schedule;
  }

  void StartWalkIfComplete(Session& last) {
    std::vector<StreamReader> readers;
    std::vector<Session*> members;
    for (auto& [key, session] : sessions_) {
      const bool same = session.version == last.version && session.hello.engine == last.hello.engine &&
                        session.hello.attempt == last.hello.attempt && session.schedule != nullptr &&
                        session.walk == nullptr;
      if (!same) continue;
      readers.push_back({key, session.schedule, session.row_amax_tensors});
      members.push_back(&session);
    }
    if (readers.size() < last.hello.tp_size) return;
    std::erase_if(walks_, [this](const auto& walk) { return walk->ended() && !IsUsed(*walk); });
    const StreamEnvironment environment{
        .ends = end_pointers_,
        .memory = *arena_,
        .pool = pool_,
        .outbox = outbox_,
        .failpoints = failpoints_,
        .window_bytes = options_.stream_window_bytes,
        .first_offer_id = next_offer_id_.fetch_add(last.version->manifest().entries().size() + 1)};
    walks_.push_back(std::make_unique<StreamWalk>(last.version, std::move(readers), environment));
    for (Session* member : members) member->walk = walks_.back().get();
  }

  bool IsUsed(const StreamWalk& walk) const {
    return std::any_of(sessions_.begin(), sessions_.end(),
                       [&](const auto& session) { return session.second.walk == &walk; });
  }

  void DropSilent() {
    std::vector<SessionKey> silent;
    for (const auto& [key, session] : sessions_) {
      if (Clock::now() - session.last_heard > 6 * options_.peer_timeout) silent.push_back(key);
    }
    for (const SessionKey& key : silent) {
      log::warn("receiver {} was silent for {} ms: its lease is over", NameOf(key),
                (6 * options_.peer_timeout).count());
      Drop(key);
    }
  }

  void Drop(const SessionKey& key) {
    const auto found = sessions_.find(key);
    if (found == sessions_.end()) return;
    if (found->second.walk != nullptr) found->second.walk->Leave(key);
    found->second.version->RemoveReader();
    sessions_.erase(found);
  }

  std::string NameOf(const SessionKey& key) const {
    const auto found = sessions_.find(key);
    if (found == sessions_.end()) return "(no session)";
    return "'" + found->second.hello.engine + "' rank " + std::to_string(found->second.hello.rank);
  }

  void Send(const SessionKey& key, const wire::Message& message) {
    const std::vector<std::byte> bytes =
        wire::Encode({.protocol = wire::kNewestProtocol, .session = key.session, .message = message});
    try {
      socket_.send(zmq::buffer(key.routing_id), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
      socket_.send(zmq::buffer(bytes), zmq::send_flags::dontwait);
    } catch (const zmq::error_t& error) {
      log::debug("receiver {} is gone: {}", NameOf(key), error.what());  // its lease will run out
    }
  }

  // The digest thread: what takes as long as reading the version.
  void RunDigests(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::optional<DigestJob> job = jobs_.Pop(Deadline::After(milliseconds(60'000)));
      if (!job) {
        if (jobs_.closed()) return;
        continue;
      }
      try {
        outbox_.Put(job->key, Answer(*job));
      } catch (const Error& error) {
        outbox_.Put(job->key, wire::Refused{error.code(), error.what()});
      }
    }
  }

  wire::Subscribed Answer(const DigestJob& job) {
    const std::span<const OfferedTensor> tensors = job.version->offer().tensors;
    wire::Subscribed subscribed;
    subscribed.offer_id = job.version->offer().id;
    const auto key = std::pair(job.version->offer().id, job.schedule->digest().ToHex());
    auto cached = chunk_digests_.find(key);
    if (cached == chunk_digests_.end()) {
      if (chunk_digests_.size() >= kCachedSchedules)
        chunk_digests_.erase(chunk_digests_.begin());  // the oldest version's
      cached = chunk_digests_.emplace(key, ChunkDigests(*job.schedule, tensors, pool_)).first;
    }
    subscribed.chunk_digests = cached->second;
    for (const std::uint32_t tensor : job.row_amax_tensors) {
      subscribed.row_amax.push_back(
          {tensor, RowAmaxOf(job.version->manifest().entry(tensor).spec, tensors[tensor].data, pool_)});
    }
    for (Digest& digest : subscribed.chunk_digests) {
      if (failpoints_.Hit("send.chunk")) digest.low ^= 1;
    }
    return subscribed;
  }

  struct DigestOrder {
    bool operator()(const Digest& a, const Digest& b) const {
      return std::pair(a.high, a.low) < std::pair(b.high, b.low);
    }
  };

  const OfferServiceOptions options_;
  WorkerPool& pool_;
  FailPoints& failpoints_;
  HostMemory host_memory_;
  const std::vector<std::unique_ptr<Transport>> transports_ = AllTransports();
  zmq::context_t context_;
  zmq::socket_t socket_;  // of the control thread, once it runs
  std::string bound_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<OfferingEnd>> ends_;
  std::vector<OfferingEnd*> end_pointers_;
  MemoryResource* arena_ = nullptr;
  std::atomic<std::uint64_t> next_offer_id_{1};
  Outbox outbox_;
  BoundedQueue<DigestJob> jobs_{kQueuedJobs};

  std::mutex mutex_;
  std::vector<std::shared_ptr<OfferedVersion>>
      versions_;  // oldest first; guarded by mutex_; also owned by the publisher

  // Of the control thread.
  std::map<SessionKey, Session> sessions_;
  std::map<Digest, std::shared_ptr<const Schedule>, DigestOrder> schedules_;
  std::vector<std::unique_ptr<StreamWalk>> walks_;
  // Of the digest thread.
  std::map<std::pair<std::uint64_t, std::string>, std::vector<Digest>> chunk_digests_;

  bool stopped_ = false;
  std::jthread digest_thread_;
  std::jthread thread_;
};

OfferService::OfferService(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints)
    : impl_(std::make_unique<Impl>(options, pool, failpoints)) {}
OfferService::~OfferService() = default;
void OfferService::Stop() { impl_->Stop(); }
std::string OfferService::endpoint() const { return impl_->endpoint(); }
MemoryResource& OfferService::arena() { return impl_->arena(); }
std::uint64_t OfferService::NextOfferId() { return impl_->NextOfferId(); }
void OfferService::Offer(std::shared_ptr<OfferedVersion> version) { impl_->Offer(std::move(version)); }
void OfferService::Withdraw(const std::shared_ptr<OfferedVersion>& version) { impl_->Withdraw(version); }
void OfferService::Forget(const std::shared_ptr<OfferedVersion>& version) { impl_->Forget(version); }

}  // namespace layercast
