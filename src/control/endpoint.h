// Addresses that our sockets bind. Loopback unless told otherwise: there is no authentication yet.
#pragma once

#include <string>
#include <string_view>

namespace layercast {

// "127.0.0.1" of "tcp://127.0.0.1:7700"; empty for ipc:// and inproc://. Throws kInvalidArgument on anything else.
std::string HostOf(const std::string& endpoint);

// Throws kInvalidArgument when the endpoint can be reached from other hosts, unless that is allowed.
void CheckBindable(const std::string& endpoint, bool allow_remote);

}  // namespace layercast
