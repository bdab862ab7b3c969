// Where a process runs, as ends of channels tell each other in their handshakes.
#pragma once

#include <string>

namespace layercast {

// What an end says about its host in the handshake; it decides which channels are viable between two ends. Value.
struct HostIdentity {
  std::string boot_id;  // equal: the same running kernel
  std::string network;  // the network namespace; equal: the same loopback interface and abstract sockets
  std::string user;     // the effective user id
  std::string process;  // "<pid>@<pid namespace>": equal: the same process
  static HostIdentity Mine();
  bool operator==(const HostIdentity&) const = default;
};

}  // namespace layercast
