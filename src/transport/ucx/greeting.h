// How a receiver comes to a publisher, by whichever lanes: HELLO and WELCOME, and why a connection was refused or lost.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "src/base/deadline.h"
#include "src/transport/control_socket.h"
#include "src/transport/ucx/messages.h"

namespace layercast::ucx_channel {

// What comes of it. Resource.
struct Greeted {
  ControlSocket control;
  Welcome welcome;
};

// `reads`: the receiver can read one-sided. Throws kUnavailable, kDeadlineExceeded, kCorrupt, and what the publisher
// refuses with.
Greeted Greet(const ControlAddress& address, bool reads, Deadline deadline);

// What opens the messages of a connection to `address`.
std::string PeerAt(const std::string& address);

// A REFUSED is thrown; anything else is kCorrupt.
[[noreturn]] void ThrowRefused(std::span<const std::byte> message);

// UCX says that the connection is lost. The publisher may have said why on the other one, or its end may be on the way:
// throws that, else kUnavailable with `lost`.
[[noreturn]] void ThrowLost(ControlSocket& control, const std::string& lost);

}  // namespace layercast::ucx_channel
