#include "src/session/relay/relay.h"

#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "src/net/zmq/endpoint.h"
#include "src/session/link/offered_version.h"
#include "src/transport/all/channel_names.h"
#include "src/transport/all/transports.h"
#include "src/transport/channel/channel.h"

namespace layercast {
namespace {

// By itself it does not offer what stays in this process: it frees what it holds once its engine takes the next
// version, and a receiver in this process might still be reading it. Other channels copy, or read what stays mapped.
std::vector<std::string> ChannelsOf(const RelayOptions& options) {
  if (!options.channels.empty()) return options.channels;
  std::vector<std::string> names;
  for (const auto& transport : TransportsNamed({})) {
    if (!StaysInTheProcess(transport->name())) names.emplace_back(transport->name());
  }
  return names;
}

OfferServiceOptions Checked(const RelayOptions& options) {
  const std::string host = HostOf(options.endpoint);
  for (const char* any : {"0.0.0.0", "[::]", "*"}) {
    if (host != any) continue;
    throw Error(ErrorCode::kInvalidArgument, "relay endpoint '" + options.endpoint +
                                                 "': expected an address that other receivers reach, got one that "
                                                 "stands for all of this host's");
  }
  return {.endpoint = options.endpoint,
          .keys = options.keys,
          .name = "relay",
          .peer_timeout = options.peer_timeout,
          .channels = ChannelsOf(options),
          .takers = options.takers,
          .probe = false};  // receivers do not measure the channels to a relay
}

}  // namespace

Relay::Point::Point(const RelayOptions& options, WorkerPool& pool, FailPoints& failpoints)
    : service(Checked(options), pool, failpoints) {}

Relay::Relay(const RelayOptions& options, WorkerPool& pool, FailPoints& failpoints)
    : Relay(std::make_shared<Point>(options, pool, failpoints)) {}

Relay::~Relay() { Clear({ErrorCode::kUnavailable, "this relay has ended"}); }

std::unique_ptr<Relay> Relay::Beside() const { return std::unique_ptr<Relay>(new Relay(point_)); }

void Relay::Clear(const Error& why) {
  for (Held& held : served_) {
    held.chunks->End(why);
    point_->service.Withdraw(held.version);
    point_->service.Expire(held.version);
    point_->retiring.push_back(std::move(held));
  }
  served_.clear();
  point_->FreeReleased();
}

Relay::Served Relay::Serve(const Schedule& schedule) {
  Held held;
  OfferService& service = point_->service;
  held.chunks = std::make_shared<RelayedChunks>(schedule, service.arena());
  held.version = std::make_shared<OfferedVersion>(held.chunks, service.NextOfferId());
  service.Offer(held.version);
  served_.push_back(held);
  return {held.chunks.get(), {service.endpoint(), held.version->offer().id}};
}

void Relay::Point::FreeReleased() {
  std::erase_if(retiring, [&](const Held& held) {
    if (!held.version->WaitReleased(Deadline::After(std::chrono::milliseconds(0)))) return false;
    service.Forget(held.version);
    return true;
  });
}

}  // namespace layercast
