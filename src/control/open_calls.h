// The calls that a server has not answered yet, by the connections that they came over: so that a call whose client has
// gone is known to be of no use any more. Used by RPC servers.
#pragma once

#include <cstdint>
#include <map>
#include <stop_token>
#include <string>

#include "src/control/json_forms.h"
#include "src/net/limits/peer_connection.h"

namespace layercast {

// Who has called. Value.
struct Caller {
  std::string routing_id;
  PeerConnection connection;
};

// Resource; one thread only.
class OpenCalls {
 public:
  struct Call {
    std::uint64_t number;       // among the server's calls
    std::stop_token abandoned;  // stops once nobody waits for the answer any more
  };

  // Notes a call that the caller gave this `id`. It is abandoned at once if the caller's connection has ended.
  Call Open(const Caller& from, const Json& id);
  // Forgets a call, which was answered.
  void Close(const Caller& from, std::uint64_t number);
  // Abandons the caller's calls of this `id`: it waits for them no longer.
  void GiveUp(const Caller& from, const Json& id);
  // Abandons all calls that came over the connection, which has ended.
  void End(const PeerConnection& connection);
  // To be called for every message. A connection has one caller: whatever came over it from another one is abandoned,
  // since that one's own connection has ended (see ConnectionLimits::ConnectionOf).
  void Heard(const Caller& from);

 private:
  struct Calls {
    struct One {
      Json id;
      std::stop_source abandoned;
    };
    std::string routing_id;
    std::map<std::uint64_t, One> by_number;
  };
  static void Abandon(Calls& calls);

  std::uint64_t last_number_ = 0;
  std::map<PeerConnection, Calls> open_;
};

}  // namespace layercast
