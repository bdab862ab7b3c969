#include "src/transport/ucx/wire/greeting.h"

#include <poll.h>

#include <chrono>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/transport/ucx/wire/settings.h"

namespace layercast::ucx_channel {
namespace {

constexpr std::chrono::milliseconds kForTheReason{200};

}  // namespace

Greeted Greet(const ControlAddress& address, bool reads, Deadline deadline) {
  ControlSocket control = ControlSocket::Connect(address, deadline);
  control.Send(Encode(Hello{kVersion, address.key, reads, MayShareMemory() ? HostIdentity::Mine() : HostIdentity()}));
  const std::vector<std::byte> answer = control.AwaitAnswer(deadline);
  if (DecodeKind(answer) != Kind::kWelcome) ThrowRefused(answer);
  Welcome welcome = Decode<Welcome>(answer);
  if (welcome.lanes == Lanes::kReads && !reads)
    throw Error(ErrorCode::kCorrupt, "WELCOME: lanes that nobody asked for");
  return {std::move(control), std::move(welcome)};
}

std::string PeerAt(const std::string& address) { return "ucx: publisher at " + WithoutKey(address); }

void ThrowRefused(std::span<const std::byte> message) {
  if (DecodeKind(message) != Kind::kRefused) throw Error(ErrorCode::kCorrupt, "an unknown kind of message");
  ThrowRefusal(message);
}

void ThrowLost(ControlSocket& control, const std::string& lost) {
  const Deadline patience = Deadline::After(kForTheReason);
  while (!patience.Passed()) {
    control.ReceiveSome([](std::span<const std::byte> message) {
      if (DecodeKind(message) == Kind::kRefused) ThrowRefusal(message);
    });
    pollfd item{control.fd(), POLLIN, 0};
    ::poll(&item, 1, static_cast<int>(patience.Remaining().count()));
  }
  throw Error(ErrorCode::kUnavailable, lost);
}

}  // namespace layercast::ucx_channel
