#include "src/session/offer/publisher_status.h"

#include <utility>

#include "src/session/link/naming_peer.h"
#include "src/session/link/publisher_link.h"

namespace layercast {

wire::StatusAnswer AskPublisherStatus(const std::string& endpoint, const Keys& keys, Deadline deadline) {
  const PeerName peer{"publisher", endpoint};
  return NamingPeer(peer, [&] {
    PublisherLink link(peer, keys, std::chrono::milliseconds(5000));
    link.Send(wire::StatusRequest{});
    wire::Message message = link.Expect(deadline, "asking for its status");
    if (auto* answer = std::get_if<wire::StatusAnswer>(&message)) return std::move(*answer);
    link.RefuseAnswer("asking for its status", "'status_answer'", message);
  });
}

}  // namespace layercast
