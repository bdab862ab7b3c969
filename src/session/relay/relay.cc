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
          .allow_remote = options.allow_remote,
          .name = "relay",
          .peer_timeout = options.peer_timeout,
          .channels = ChannelsOf(options),
          .probe = false};  // receivers do not measure the channels to a relay
}

}  // namespace

Relay::Relay(const RelayOptions& options, WorkerPool& pool, FailPoints& failpoints)
    : service_(Checked(options), pool, failpoints) {}

Relay::~Relay() { service_.Stop(); }  // before the memory that it offers is freed

void Relay::Clear(const Error& why) {
  for (Held& held : served_) {
    held.chunks->End(why);
    service_.Withdraw(held.version);
    service_.Expire(held.version);
    retiring_.push_back(std::move(held));
  }
  served_.clear();
  FreeReleased();
}

Relay::Served Relay::Serve(const Schedule& schedule) {
  Held held;
  held.chunks = std::make_shared<RelayedChunks>(schedule, service_.arena());
  held.version = std::make_shared<OfferedVersion>(held.chunks, service_.NextOfferId());
  service_.Offer(held.version);
  served_.push_back(held);
  return {held.chunks.get(), {service_.endpoint(), held.version->offer().id}};
}

void Relay::FreeReleased() {
  std::erase_if(retiring_, [&](const Held& held) {
    if (!held.version->WaitReleased(Deadline::After(std::chrono::milliseconds(0)))) return false;
    service_.Forget(held.version);
    return true;
  });
}

}  // namespace layercast
