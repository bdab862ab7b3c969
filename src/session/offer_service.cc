#include "src/session/offer_service.h"

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
#include "src/base/thread_clock.h"
#include "src/base/thread_name.h"
#include "src/control/endpoint.h"
#include "src/session/channel_probe.h"
#include "src/session/offer_desk.h"
#include "src/transport/carried_offer.h"
#include "src/zmq/message_limit.h"
#include "src/zmq/poll_sockets.h"
#include "src/zmq/zmq_threads.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::milliseconds kTick{500};  // how often leases are looked at
constexpr int kLeaseInTimeouts = 6;              // FORMAT.md

}  // namespace

class OfferService::Impl {
 public:
  Impl(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints, DeviceBytes* device,
       std::vector<std::unique_ptr<Transport>> transports)
      : transports_(std::move(transports)),
        context_(1),
        library_threads_(context_),
        socket_(context_, zmq::socket_type::router) {
    limit_.emplace(context_, socket_, wire::kMaxAskBytes);
    const std::string bindable = AsBindable(options.endpoint);
    CheckBindable(bindable, options.allow_remote);
    Bind(options.endpoint, bindable);
    OpenChannels(HostOf(bindable), options.nccl_fleet, failpoints);
    if (options.probe) OfferProbe();
    desk_ = std::make_unique<OfferDesk>(
        DeskOptions{.name = options.name,
                    .lease = kLeaseInTimeouts * options.peer_timeout,
                    .max_sessions = options.max_sessions,
                    .stream_window_bytes = options.stream_window_bytes},
        OfferDesk::Parts{.pool = pool,
                         .failpoints = failpoints,
                         .outbox = outbox_,
                         .arena = *arena_,
                         .device = device,
                         .ends = end_pointers_,
                         .channels = [this](const OfferedVersion& version) { return ChannelsOf(version); },
                         .take_offer_ids = [this](std::uint64_t count) { return next_offer_id_.fetch_add(count); },
                         .core_seconds = [this] { return CoreSeconds(); }});
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  ~Impl() { Stop(); }

  void Stop() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    outbox_.wake_up().Ring();
    thread_.join();
    std::unique_ptr<OfferDesk> desk;  // goes after the lock, which a walk that it waits for may ask for
    const std::lock_guard lock(versions_mutex_);
    carried_.clear();  // whoever forgets one on another thread meanwhile waits: till then it may be read
    desk.swap(desk_);
  }

  const std::string& endpoint() const { return bound_; }
  MemoryResource& arena() { return *arena_; }
  bool carries(const Device& device) const {
    return std::ranges::all_of(end_pointers_, [&](const OfferingEnd* end) { return end->reads_from(device); });
  }
  std::uint64_t NextOfferId() { return next_offer_id_.fetch_add(1); }

  void Offer(std::shared_ptr<OfferedVersion> version) {
    std::optional<CarriedOffer> carried;
    if (version->mode() == PublishMode::kSnapshot) {  // a stream's walks offer slot by slot
      carried.emplace(version->offer(), CarriersOf(*version, end_pointers_));
    }
    const std::lock_guard lock(versions_mutex_);
    if (desk_ == nullptr) throw Error(ErrorCode::kFailedPrecondition, "this publisher has ended");
    if (carried) carried_.emplace(version->offer().id, *std::move(carried));
    desk_->Add(std::move(version));
  }
  void Withdraw(const std::shared_ptr<OfferedVersion>& version) {
    const std::lock_guard lock(versions_mutex_);
    if (desk_ != nullptr) return desk_->Withdraw(version);
    version->Retire();
  }
  void Forget(const std::shared_ptr<OfferedVersion>& version) {
    std::map<std::uint64_t, CarriedOffer>::node_type gone;  // after the lock: taking it back may wait for a receiver
    const std::lock_guard lock(versions_mutex_);
    gone = carried_.extract(version->offer().id);
  }

 private:
  void Bind(const std::string& endpoint, const std::string& bindable) {
    socket_.set(zmq::sockopt::ipv6, IsIpv6(bindable));
    socket_.set(zmq::sockopt::linger, 200);
    socket_.set(zmq::sockopt::router_mandatory, true);
    socket_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(wire::kMaxAskBytes));
    try {
      socket_.bind(bindable);
    } catch (const zmq::error_t& error) {
      throw Error(ErrorCode::kUnavailable, "publisher endpoint '" + endpoint + "': " + error.what());
    }
    bound_ = socket_.get(zmq::sockopt::last_endpoint);
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

  // On this service's thread.
  double CoreSeconds() {
    double seconds = CoreSecondsOfThisThread() + library_threads_.core_seconds();
    for (OfferingEnd* end : end_pointers_) seconds += end->core_seconds();
    return seconds;
  }

  void Run(const std::stop_token& stop) {
    NameThisThread("lc-offer");
    Clock::time_point next_sweep = Clock::now() + kTick;
    while (!stop.stop_requested()) {
      std::array<zmq::pollitem_t, 2> items = {
          {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, outbox_.wake_up().fd(), ZMQ_POLLIN, 0}}};
      PollSockets(items, MessageMeter::kLook);
      for (auto& [key, message] : outbox_.TakeAll()) Send(key, std::move(message));
      TakeMessages();
      if (Clock::now() >= next_sweep) {
        desk_->Sweep();
        next_sweep = Clock::now() + kTick;
      }
    }
    for (const auto& [key, message] : desk_->LastWords()) Send(key, message);
  }

  void TakeMessages() {
    zmq::message_t routing_id;
    while (socket_.recv(routing_id, zmq::recv_flags::dontwait)) {
      zmq::message_t body;
      std::size_t parts = 0;
      for (bool more = routing_id.more(); more; more = body.more(), ++parts) {
        if (!socket_.recv(body)) return;
      }
      limit_->Heard(body);
      if (parts == 1) Take(routing_id.to_string(), {static_cast<const std::byte*>(body.data()), body.size()});
    }
    if (limit_->Enforce()) log::warn("publisher {}: a receiver loses its connection: {}", bound_, limit_->Complaint());
  }

  void Take(const std::string& from, std::span<const std::byte> bytes) {
    SessionKey key{from, 0};
    try {
      wire::Frame frame = wire::Decode(bytes);
      key.session = frame.session;
      for (wire::Message& answer : desk_->Take(key, std::move(frame.message))) Send(key, std::move(answer));
    } catch (const std::exception& error) {
      Send(key, desk_->Refuse(key, AsError(error)));
    }
  }

  void Send(const SessionKey& key, wire::Message message) {
    const std::vector<std::byte> bytes = wire::Encode({.session = key.session, .message = std::move(message)});
    try {
      if (socket_.send(zmq::buffer(key.routing_id), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
        socket_.send(zmq::buffer(bytes), zmq::send_flags::dontwait);
        return;
      }
      desk_->DropDeaf(key);  // its queue is full: without this message, whatever it is, its session is of no use
    } catch (const zmq::error_t& error) {
      log::debug("a receiver is gone: {}", error.what());  // its lease will run out
    }
  }

  HostMemory host_memory_;
  const std::vector<std::unique_ptr<Transport>> transports_;
  zmq::context_t context_;
  ZmqThreads library_threads_;
  std::optional<MessageLimit> limit_;  // of the socket, which it outlives
  zmq::socket_t socket_;               // of the control thread, once it runs
  std::string bound_;
  std::vector<std::unique_ptr<OfferingEnd>> ends_;
  std::vector<OfferingEnd*> end_pointers_;
  std::map<const OfferingEnd*, std::string> names_;
  MemoryResource* arena_ = nullptr;
  std::optional<ProbeOffer> probe_;
  std::optional<CarriedOffer> carried_probe_;  // goes before the probe's memory
  std::mutex versions_mutex_;
  std::map<std::uint64_t, CarriedOffer> carried_;  // the snapshots, by offer; guarded by versions_mutex_
  std::atomic<std::uint64_t> next_offer_id_{1};
  Outbox outbox_;
  // Null once stopped; guarded by versions_mutex_, but for the thread, which ends before it does.
  std::unique_ptr<OfferDesk> desk_;
  std::jthread thread_;
};

OfferService::OfferService(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints,
                           DeviceBytes* device)
    : OfferService(options, pool, failpoints, device, TransportsNamed(options.channels)) {}
OfferService::OfferService(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints,
                           DeviceBytes* device, std::vector<std::unique_ptr<Transport>> transports)
    : impl_(std::make_unique<Impl>(options, pool, failpoints, device, std::move(transports))) {}
OfferService::~OfferService() = default;
void OfferService::Stop() { impl_->Stop(); }
std::string OfferService::endpoint() const { return impl_->endpoint(); }
MemoryResource& OfferService::arena() { return impl_->arena(); }
bool OfferService::carries(const Device& device) const { return impl_->carries(device); }
std::uint64_t OfferService::NextOfferId() { return impl_->NextOfferId(); }
void OfferService::Offer(std::shared_ptr<OfferedVersion> version) { impl_->Offer(std::move(version)); }
void OfferService::Withdraw(const std::shared_ptr<OfferedVersion>& version) { impl_->Withdraw(version); }
void OfferService::Forget(const std::shared_ptr<OfferedVersion>& version) { impl_->Forget(version); }

}  // namespace layercast
