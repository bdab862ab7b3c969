// How a receiver of the ucx channel opens its connection, over whatever lanes: HELLO and WELCOME, and the errors of a
// connection that is refused or lost. Used by the transport and its receiving ends.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "src/base/deadline.h"
#include "src/net/control_socket.h"
#include "src/transport/ucx/wire/ucx_messages.h"

namespace layercast::ucx_channel {

// An open control connection, and the publisher's answer. Resource.
struct Greeted {
  ControlSocket control;
  Welcome welcome;
};

// Connects, and exchanges HELLO and WELCOME. `reads`: whether the receiver can read one-sided. Throws kUnavailable,
// kDeadlineExceeded, kCorrupt, and the error with which the publisher refuses.
Greeted Greet(const ControlAddress& address, bool reads, Deadline deadline);

// The text that opens the error messages of a connection to `address`; it leaves out the key.
std::string PeerAt(const std::string& address);

// Throws the error that a REFUSED carries, and kCorrupt if the message is not a REFUSED.
[[noreturn]] void ThrowRefused(std::span<const std::byte> message);

// To be called when UCX says that its connection is lost. The control connection may tell why, at once or a moment
// later: the publisher has refused, or has ended. Throws that; if nothing comes, kUnavailable with `lost`.
[[noreturn]] void ThrowLost(ControlSocket& control, const std::string& lost);

}  // namespace layercast::ucx_channel
