#include "src/session/offer/offer_service.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/log.h"
#include "src/base/threads/thread_clock.h"
#include "src/base/threads/thread_name.h"
#include "src/net/curve/key_check.h"
#include "src/net/limits/connection_limits.h"
#include "src/net/limits/peer_ledger.h"
#include "src/net/limits/take_turn.h"
#include "src/net/message_order.h"
#include "src/net/zmq/endpoint.h"
#include "src/net/zmq/listening.h"
#include "src/net/zmq/poll_sockets.h"
#include "src/net/zmq/zmq_context.h"
#include "src/net/zmq/zmq_threads.h"
#include "src/session/choose/channel_probe.h"
#include "src/session/offer/version_desk.h"
#include "src/transport/all/transports.h"
#include "src/transport/channel/carried_offer.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::milliseconds kTick{500};  // how often leases are looked at
constexpr int kLeaseInTimeouts = 6;              // FORMAT.md
// How much is taken from the socket before other work has its turn.
constexpr Turn kTurn{.messages = 64, .bytes = wire::kMaxAskBytes};

}  // namespace

class OfferService::Impl {
 public:
  Impl(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints, DeviceBytes* device,
       std::vector<std::unique_ptr<Transport>> transports)
      : pool_(pool),
        keys_(options.keys),
        transports_(std::move(transports)),
        context_(MakeContext(options.name + " '" + options.endpoint + "'")),
        library_threads_(context_),
        socket_(context_, zmq::socket_type::router) {
    limits_.emplace(context_, socket_,
                    ConnectionLimits::Listening(wire::kMaxAskBytes, options.keys.given(), options.connection_budget));
    Bind(options);
    OpenChannels(HostOf(listening_->endpoint()), options.nccl_fleet, failpoints);
    if (options.probe) OfferProbe();
    desk_ = std::make_unique<VersionDesk>(
        DeskOptions{.name = options.name,
                    .lease = kLeaseInTimeouts * options.peer_timeout,
                    .eviction_time = options.eviction_time,
                    .max_sessions = options.max_sessions,
                    .stream_window_bytes = options.stream_window_bytes},
        VersionDesk::Parts{
            .context = {.pool = pool,
                        .failpoints = failpoints,
                        .outbox = outbox_,
                        .arena = *arena_,
                        .device = device,
                        .ends = end_pointers_,
                        .asked = asked_,
                        .signing = keys_.signing(),
                        .take_offer_ids = [this](std::uint64_t count) { return next_offer_id_.fetch_add(count); }},
            .channels = [this](const OfferedVersion& version) { return ChannelsOf(version); },
            .take_back = [this](std::span<const wire::ChannelAddress> channels) { TakeBack(channels); },
            .core_seconds = [this] { return CoreSeconds(); },
            .keeper = options.keeper,
            .takers = options.takers,
            .send_trace = options.send_trace});
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  ~Impl() { Stop(); }

  void Stop() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    outbox_.wake_up().Ring();
    thread_.join();
    std::unique_ptr<VersionDesk> desk;  // destroyed after the lock is gone, which a walk that it waits for may want
    const std::lock_guard lock(versions_mutex_);
    carried_.clear();  // under the lock, so that a Forget on another thread waits: until this is done, an offer is read
    desk.swap(desk_);
  }

  const std::string& endpoint() const { return listening_->endpoint(); }
  MemoryResource& arena() { return *arena_; }
  bool carries(const Device& device) const {
    return std::ranges::all_of(end_pointers_, [&](const OfferingEnd* end) { return end->reads_from(device); });
  }
  std::uint64_t NextOfferId() { return next_offer_id_.fetch_add(1); }
  DigestsBySchedule DigestsOfAsked(const Digest& layout, const layercast::Offer& next) {
    return asked_.DigestsOf(layout, next, pool_);
  }

  void Offer(std::shared_ptr<OfferedVersion> version) {
    std::map<std::uint64_t, CarriedOffer> carried;    // a map, so that nothing can fail once receivers may ask for it
    if (version->mode() == PublishMode::kSnapshot) {  // a stream's walks offer slot by slot
      carried.emplace(version->offer().id, CarriedOffer(version->offer(), CarriersOf(*version, end_pointers_)));
    }
    const std::lock_guard lock(versions_mutex_);
    if (desk_ == nullptr) throw Error(ErrorCode::kFailedPrecondition, "this publisher has ended");
    desk_->Add(std::move(version));
    carried_.merge(carried);
  }
  void Withdraw(const std::shared_ptr<OfferedVersion>& version) {
    const std::lock_guard lock(versions_mutex_);
    if (desk_ != nullptr) return desk_->Withdraw(version);
    version->Retire();
  }
  void Expire(const std::shared_ptr<OfferedVersion>& version) {
    version->Expire();
    sweep_now_ = true;
    outbox_.wake_up().Ring();
  }
  void Forget(const std::shared_ptr<OfferedVersion>& version) {
    std::map<std::uint64_t, CarriedOffer>::node_type gone;  // destroyed after the lock: it may wait for a receiver
    const std::lock_guard lock(versions_mutex_);
    gone = carried_.extract(version->offer().id);
  }

 private:
  void Bind(const OfferServiceOptions& options) {
    socket_.set(zmq::sockopt::linger, 200);
    socket_.set(zmq::sockopt::router_mandatory, true);
    socket_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(wire::kMaxAskBytes));
    socket_.set(zmq::sockopt::rcvhwm, ConnectionLimits::kMostUnheard);
    check_.emplace(context_, socket_, options.keys, options.name + " " + options.endpoint);
    listening_.emplace(socket_, "publisher", options.endpoint, options.keys.may_leave_the_host());
  }

  void OpenChannels(const std::string& host, std::size_t fleet_size, FailPoints& failpoints) {
    const OfferingOptions offering{.bind_host = host.empty() ? "127.0.0.1" : host, .fleet_size = fleet_size};
    for (const std::unique_ptr<Transport>& transport : transports_) {
      ends_.push_back(transport->Offering(offering));
      names_.emplace(ends_.back().get(), transport->name());
      ends_.back()->Arm(failpoints);
      end_pointers_.push_back(ends_.back().get());
      if (arena_ == nullptr) arena_ = ends_.back()->arena();
    }
    if (arena_ == nullptr) arena_ = &host_memory_;
  }

  void OfferProbe() {
    probe_.emplace(*arena_);
    carried_probe_.emplace(probe_->offer(), end_pointers_);
  }

  std::vector<wire::ChannelAddress> ChannelsOf(const OfferedVersion& version) const {
    std::vector<wire::ChannelAddress> channels;
    for (const OfferingEnd* end : CarriersOf(version, end_pointers_)) {
      channels.push_back({names_.at(end), end->address()});
    }
    return channels;
  }

  void TakeBack(std::span<const wire::ChannelAddress> channels) {
    for (const wire::ChannelAddress& channel : channels) {
      for (OfferingEnd* const end : end_pointers_) {
        if (names_.at(end) == channel.name) end->TakeBack(channel.address);
      }
    }
  }

  // Called on this service's thread.
  double CoreSeconds() {
    double seconds = CoreSecondsOfThisThread() + library_threads_.core_seconds();
    for (OfferingEnd* end : end_pointers_) seconds += end->core_seconds();
    return seconds;
  }

  void Run(const std::stop_token& stop) {
    NameThisThread("lc-offer");
    Clock::time_point next_sweep = Clock::now() + kTick;
    while (!stop.stop_requested()) {
      std::array<zmq::pollitem_t, 3> items = {
          {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, outbox_.wake_up().fd(), ZMQ_POLLIN, 0}, check_->item()}};
      PollSockets(items, limits_->look());
      if (check_->Work(*limits_)) {
        desk_->DropUnknownUsers([this](const std::string& user) { return check_->Knows(user); });
      }
      for (auto& [key, message] : outbox_.TakeAll()) Send(key, std::move(message));
      TakeMessages();
      if (sweep_now_.exchange(false) || Clock::now() >= next_sweep) {
        desk_->Sweep();
        ledger_.Sweep(desk_->lease());
        next_sweep = Clock::now() + kTick;
      }
    }
    for (const auto& [key, message] : desk_->LastWords()) Send(key, message);
  }

  void TakeMessages() {
    const auto take = [this](const zmq::message_t& routing_id, zmq::message_t& body) {
      const std::string from = routing_id.to_string();
      if (!ledger_.IsBarred(from)) Take(from, body);
    };
    const std::string why = TakeTurn(socket_, *limits_, kTurn, take);
    if (!why.empty()) log::warn("publisher {}: a receiver loses its connection: {}", endpoint(), why);
  }

  void Take(const std::string& from, zmq::message_t& body) {
    MessageHasCome();
    SessionKey key{from, 0};
    std::vector<wire::Message> answers;
    try {
      wire::Frame frame = wire::Decode({static_cast<const std::byte*>(body.data()), body.size()});
      key.session = frame.session;
      check_->Expect(body, wire::MessageName(frame.message));
      const bool begins = std::holds_alternative<wire::Hello>(frame.message);
      const bool leaves = std::holds_alternative<wire::Bye>(frame.message);
      answers = desk_->Take(key, std::move(frame.message));
      if (begins) desk_->NoteUser(key, KeyCheck::UserOf(body));
      // It may have kept its connection for the next session, but not in the place of others.
      if (leaves && limits_->crowded() && !desk_->HasSession(from)) limits_->ConnectionOf(body).Cut();
    } catch (const std::exception& error) {
      answers.emplace_back(desk_->Refuse(key, AsError(error)));
    }
    for (wire::Message& answer : answers) {
      const bool refused = std::holds_alternative<wire::Refused>(answer);
      Send(key, std::move(answer));
      if (!refused) continue;
      if (const auto barred = ledger_.NoteRefused(from, limits_->Blamed(body, from))) Bar(from, *barred);
    }
  }

  void Bar(const std::string& from, const PeerConnection& connection) {
    desk_->DropBarred(from);
    connection.Cut();
  }

  void Send(const SessionKey& key, wire::Message message) {
    std::optional<zmq::message_t> charged =
        ledger_.Charge(key.routing_id, wire::Encode({.session = key.session, .message = std::move(message)}));
    MessageLeaves();
    try {
      if (charged && socket_.send(zmq::buffer(key.routing_id), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
        socket_.send(*charged, zmq::send_flags::dontwait);
        return;
      }
      desk_->DropDeaf(key);  // too much waits for it already, and without this message its session is of no use
    } catch (const zmq::error_t& error) {
      log::debug("a receiver is gone: {}", error.what());  // its lease will run out
    }
  }

  WorkerPool& pool_;
  const Keys keys_;
  HostMemory host_memory_;
  const std::vector<std::unique_ptr<Transport>> transports_;
  PeerLedger ledger_{wire::kMaxFrameBytes};  // outlives the context
  zmq::context_t context_;
  ZmqThreads library_threads_;
  std::optional<ConnectionLimits> limits_;  // of the socket, which it outlives
  zmq::socket_t socket_;                    // of the control thread, once it runs
  std::optional<KeyCheck> check_;           // likewise
  std::optional<Listening> listening_;
  std::vector<std::unique_ptr<OfferingEnd>> ends_;
  std::vector<OfferingEnd*> end_pointers_;
  std::map<const OfferingEnd*, std::string> names_;
  MemoryResource* arena_ = nullptr;
  std::optional<ProbeOffer> probe_;
  std::optional<CarriedOffer> carried_probe_;  // destroyed before the probe's memory
  std::mutex versions_mutex_;
  std::map<std::uint64_t, CarriedOffer> carried_;  // the snapshots, by offer; guarded by versions_mutex_
  std::atomic<std::uint64_t> next_offer_id_{1};
  Outbox outbox_;
  AskedSchedules asked_;
  std::atomic<bool> sweep_now_{false};
  // Null once stopped. Guarded by versions_mutex_, except on the service's thread, which ends before it becomes null.
  std::unique_ptr<VersionDesk> desk_;
  std::jthread thread_;
};

OfferService::OfferService(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints,
                           DeviceBytes* device)
    : OfferService(options, pool, failpoints, device, TransportsNamed(options.channels, options.keys)) {}
OfferService::OfferService(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints,
                           DeviceBytes* device, std::vector<std::unique_ptr<Transport>> transports)
    : impl_(std::make_unique<Impl>(options, pool, failpoints, device, std::move(transports))) {}
OfferService::~OfferService() = default;
void OfferService::Stop() { impl_->Stop(); }
std::string OfferService::endpoint() const { return impl_->endpoint(); }
MemoryResource& OfferService::arena() { return impl_->arena(); }
bool OfferService::carries(const Device& device) const { return impl_->carries(device); }
std::uint64_t OfferService::NextOfferId() { return impl_->NextOfferId(); }
DigestsBySchedule OfferService::DigestsOfAsked(const Digest& layout, const layercast::Offer& next) {
  return impl_->DigestsOfAsked(layout, next);
}
void OfferService::Offer(std::shared_ptr<OfferedVersion> version) { impl_->Offer(std::move(version)); }
void OfferService::Withdraw(const std::shared_ptr<OfferedVersion>& version) { impl_->Withdraw(version); }
void OfferService::Expire(const std::shared_ptr<OfferedVersion>& version) { impl_->Expire(version); }
void OfferService::Forget(const std::shared_ptr<OfferedVersion>& version) { impl_->Forget(version); }

}  // namespace layercast
